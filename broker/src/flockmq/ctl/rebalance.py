"""`flockmq ctl rebalance`: how many clients each node sends to others because it has more than its share, or drains;
and starts and ends that by hand."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlencode

from flockmq.ctl.api import Api, Row
from flockmq.ctl.verbs import Verbs, add_status, add_verb, given
from flockmq.management.rebalance_rows import THRESHOLDS, WAITS

_PLAN: Final = {
    "clients": "clients",
    "load": "load",
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
    "asked": "asked",
}


def add(verbs: Verbs) -> None:
    what = "how many clients each node would send to others, and how long that takes; needs no key"
    plan = add_verb(verbs, "plan", what, _plan, keyless=True, in_columns=True)
    add_status(verbs, _status)
    start = add_verb(verbs, "start", "begin now, also where it is off; it ends by itself", _start, in_columns=True)
    stop = add_verb(verbs, "stop", "end what was started", _stop)
    for verb in (plan, start):
        verb.add_argument(
            "--relative-threshold", type=_number, metavar="X", help="times the mean (default: each node's)"
        )
        verb.add_argument(
            "--absolute-threshold", type=int, metavar="N", help="load above the mean (default: each node's)"
        )
        verb.add_argument(
            "--rate", type=_number, metavar="N", help="clients per second of all nodes (default: each node's)"
        )
        for what in ("connections", "sessions", "messages"):
            counts = f"how much the share of {what} counts in the load (default: each node's)"
            verb.add_argument(f"--{what}-weight", type=_number, metavar="X", help=counts)
    start.add_argument("--wait", type=_number, metavar="S", help="seconds until the first client goes (default: 0)")
    settle = "it is over when none has gone for so many seconds (default: 10)"
    start.add_argument("--settle", type=_number, metavar="S", help=settle)
    for verb in (start, stop):
        verb.add_argument("--node", metavar="NAME", help="this node alone (default: all)")


def _plan(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    wanted = given(options, *THRESHOLDS)
    return _rows(api.ask("GET", f"/rebalance?{urlencode(wanted)}" if wanted else "/rebalance"), _PLAN)


def _status(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    return _rows(api.ask("GET", "/rebalance"), _STATUS)


def _start(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    told = api.ask("PUT", "/rebalance", given(options, *THRESHOLDS, *WAITS, "node"))
    for missing in told["missing"]:
        print(f"flockmq ctl: it goes on without a node: {missing}", file=sys.stderr)
    return _rows(told, _STATUS)


def _stop(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    node = given(options, "node")
    return api.delete(f"/rebalance?{urlencode(node)}" if node else "/rebalance")


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number")
    return number


def _rows(told: Row, columns: Row) -> Iterator[Row]:
    """Yield a row per node, then one for the cluster: who tells it, how many clients go, and when the last has gone."""
    nodes: Sequence[Row] = told["nodes"]
    for node in nodes:
        cells = {name: node.get(field) for name, field in columns.items()}
        if asked := cells.get("asked"):
            cells["asked"] = f"{asked['state']} {asked['name']}".rstrip()
        yield {"node": node["node"], "role": node["role"]} | cells
    number = "sends" if columns is _PLAN else "left"
    seconds = [node[columns["seconds"]] for node in nodes if node[columns[number]]]
    last_s = None if None in seconds else max(seconds, default=0.0)
    yield {"told_by": told["told_by"], number: sum(node[columns[number]] or 0 for node in nodes), "seconds": last_s}
