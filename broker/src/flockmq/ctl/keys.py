"""`flockmq ctl keys`: API keys."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from flockmq.ctl.api import Api, Row, path
from flockmq.ctl.verbs import Verbs, add_verb, seconds


def add(verbs: Verbs) -> None:
    add_verb(verbs, "list", "all of them, without what they are", _list)
    new = add_verb(verbs, "add", "a new one; what it is is printed this once", _add)
    remove = add_verb(verbs, "remove", "it opens nothing any more", _remove)
    for verb in (new, remove):
        verb.add_argument("name", metavar="NAME")
    new.add_argument(
        "--role", choices=("viewer", "operator", "admin"), required=True, help="sees; ends what is there; all"
    )
    new.add_argument("--for", dest="duration", metavar="DURATION", help="for example 30d (default: for good)")


def _list(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield from api.ask("GET", "/keys")["data"]


def _add(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("POST", "/keys", {"name": options.name, "role": options.role} | seconds(options))


def _remove(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.delete(path("keys", options.name))
