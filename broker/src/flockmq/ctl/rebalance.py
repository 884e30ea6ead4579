"""`flockmq ctl rebalance`: how many clients each node sends to others because it has more than its share, or drains."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from flockmq.ctl.api import Api, Row
from flockmq.ctl.verbs import Verbs, add_status, add_verb

_PLAN: Final = {
    "clients": "clients",
    "mean": "mean",
    "begins_above": "begins_above",
    "sends": "planned",
    "seconds": "planned_s",
    "enabled": "is_enabled",
}
"""Column → field of a node's row."""
_STATUS: Final = {
    "state": "state",
    "clients": "clients",
    "left": "left",
    "rate": "rate",
    "seconds": "left_s",
    "sent": "evicted",
}


def add(verbs: Verbs) -> None:
    what = "how many clients each node would send to others, and how long that takes; needs no key"
    add_verb(verbs, "plan", what, _plan, keyless=True, in_columns=True)
    add_status(verbs, _status)


def _plan(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return _rows(api, _PLAN)


def _status(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return _rows(api, _STATUS)


def _rows(api: Api, columns: Row) -> Iterator[Row]:
    """Yield a row per node, then one for the cluster: who tells it, how many clients go, and when the last has gone."""
    told = api.ask("GET", "/rebalance")
    nodes: Sequence[Row] = told["nodes"]
    for node in nodes:
        yield {"node": node["node"], "role": node["role"]} | {name: node[field] for name, field in columns.items()}
    number = "sends" if columns is _PLAN else "left"
    seconds = [node[columns["seconds"]] for node in nodes if node[columns[number]]]
    last_s = None if None in seconds else max(seconds, default=0.0)
    yield {"told_by": told["told_by"], number: sum(node[columns[number]] or 0 for node in nodes), "seconds": last_s}
