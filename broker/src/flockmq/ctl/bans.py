"""`flockmq ctl bans`: banned clients."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from flockmq.ctl.api import Api, Row, path
from flockmq.ctl.verbs import Verbs, add_list, add_verb, seconds

KINDS: Final = ("client", "clientid", "username", "peerhost", "clientid_pattern", "username_pattern", "peerhost_net")


def add(verbs: Verbs) -> None:
    add_list(verbs, "all of them", _list)
    new = add_verb(verbs, "add", "who is connected is sent away", _add)
    remove = add_verb(verbs, "remove", "it may connect again", _remove)
    for verb in (new, remove):
        verb.add_argument("kind", choices=KINDS)
        verb.add_argument("who", metavar="WHO")
    new.add_argument("--for", dest="duration", metavar="DURATION", help="for example 15m or 2h (default: for good)")
    new.add_argument("--reason", default="", metavar="TEXT")


def _list(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/bans")


def _add(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    asked = {"as": options.kind, "who": options.who, "by": "ctl", "reason": options.reason}
    yield api.ask("POST", "/bans", asked | seconds(options))


def _remove(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    named = path("bans", options.kind, options.who)
    return api.end(named, "/bans/lift", {"as": options.kind, "who": options.who})
