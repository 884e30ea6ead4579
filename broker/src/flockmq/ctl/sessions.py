"""`flockmq ctl sessions`: sessions of clients."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from urllib.parse import urlencode

from flockmq.bounds import AUTH_PAGE_MAX
from flockmq.ctl.api import Api, Row, path
from flockmq.ctl.verbs import Verbs, add_list, add_verb, given


def add(verbs: Verbs) -> None:
    several = add_list(verbs, "those that outlive their connections", _list)
    several.add_argument("--clientid", metavar="PATTERN", help="for example 'sensor-*'")
    several.add_argument("--connected", choices=("yes", "no"), help="whether their clients are there")
    show = add_verb(verbs, "show", "any of them, and what it is subscribed to", _show)
    remove = add_verb(
        verbs, "remove", "end a client's session, one that can't be read too, and its connection", _remove
    )
    for verb in (show, remove):
        verb.add_argument("client_id", metavar="CLIENTID")


def _list(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.pages("/sessions", given(options, "clientid", "connected"))


def _show(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for the session, then one per subscription."""
    session, after = path("sessions", options.client_id), 0
    while True:
        shown = dict(api.ask("GET", f"{session}?{urlencode({'limit': AUTH_PAGE_MAX, 'after': after})}"))
        filters, go_on = shown.pop("filters"), shown.pop("next")
        if after == 0:
            yield shown
        yield from filters
        if go_on is None:
            return
        after = go_on


def _remove(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.end(path("sessions", options.client_id), "/sessions/end", {"clientid": options.client_id})
