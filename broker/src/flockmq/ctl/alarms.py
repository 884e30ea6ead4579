"""`flockmq ctl alarms`: the cluster's alarms."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime

from flockmq.ctl.api import Api, Row, path
from flockmq.ctl.verbs import Verbs, add_verb


def add(verbs: Verbs) -> None:
    add_verb(verbs, "list", "all of them, the oldest first; needs no key", _list, keyless=True)
    end = add_verb(verbs, "end", "somebody has looked at it", _end)
    end.add_argument("name", metavar="NAME")


def _list(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    for alarm in api.rows("/alarms", version="v5"):
        since = datetime.fromtimestamp(alarm["since_s"], UTC)
        yield {"name": alarm["name"], "since": since.isoformat(timespec="seconds"), "text": alarm["text"]}


def _end(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.delete(path("alarms", options.name), version="v5")
