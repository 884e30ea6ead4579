"""`flockmq ctl clients`: connected clients."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from flockmq.ctl.api import Api, Row, path
from flockmq.ctl.verbs import Verbs, add_list, add_verb, given


def add(verbs: Verbs) -> None:
    several = add_list(verbs, "all of them, or those that are like this", _list)
    several.add_argument("--clientid", metavar="PATTERN", help="for example 'sensor-*'")
    several.add_argument("--username", metavar="PATTERN")
    several.add_argument("--listener", metavar="PATTERN", help="for example 'ssl:*'")
    several.add_argument("--node", metavar="NAME", help="connected there")
    several.add_argument("--peerhost", metavar="ADDRESS", help="or a network, for example 10.0.0.0/8")
    show = add_verb(verbs, "show", "one of them", _show)
    kick = add_verb(verbs, "kick", "end its connection; its session goes on, if it lasts", _kick)
    for verb in (show, kick):
        verb.add_argument("client_id", metavar="CLIENTID")


def _list(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/clients", given(options, "clientid", "username", "listener", "node", "peerhost"))


def _show(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("GET", path("clients", options.client_id))


def _kick(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.end(path("clients", options.client_id), "/clients/kick", {"clientid": options.client_id})
