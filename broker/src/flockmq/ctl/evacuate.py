"""`flockmq ctl evacuate`: sends the clients of the node at `--url` to other nodes, while it keeps running."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from flockmq.ctl.api import Api, Row
from flockmq.ctl.verbs import Verbs, add_verb


def add(verbs: Verbs) -> None:
    add_verb(verbs, "start", "send its clients to other nodes, and take none", _start)
    add_verb(verbs, "status", "how many are left, and how fast they go", _status)
    add_verb(verbs, "stop", "take clients again", _stop)


def _start(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("POST", "/evacuation")


def _status(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    yield api.ask("GET", "/evacuation")


def _stop(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return api.delete("/evacuation")
