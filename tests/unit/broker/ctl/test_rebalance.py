"""The tables of `flockmq ctl rebalance`."""

from __future__ import annotations

import argparse
from typing import Any, cast

import msgspec

from flockmq.ctl import rebalance
from flockmq.ctl.api import Api
from flockmq.management.view import RebalanceRow, RebalanceShown

BUSY = RebalanceRow(
    node="r-1", role="replicant", state="rebalancing", clients=100, is_enabled=True, mean=70.0, begins_above=80,
    planned=30, planned_s=6.0, left=25, rate=5.0, left_s=5.0, evicted=7,
)  # fmt: skip
IDLE = RebalanceRow(node="r-2", role="replicant", state="idle", clients=40)
STUCK = RebalanceRow(node="r-3", role="replicant", state="draining", clients=3, left=3)


def rows(verb: str, *nodes: RebalanceRow) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser()
    rebalance.add(parser.add_subparsers())
    told = msgspec.to_builtins(RebalanceShown(told_by="core-0", nodes=nodes))
    asked = type("Asked", (), {"ask": lambda *_: told})
    options = parser.parse_args([verb])
    return list(options.do(cast(Api, asked()), options))


def test_the_plan_says_by_node_what_it_would_send_and_when_the_last_has_gone() -> None:
    first, second, whole = rows("plan", BUSY, IDLE)
    assert list(first) == ["node", "role", "clients", "mean", "begins_above", "sends", "seconds", "enabled"]
    assert list(first.values()) == ["r-1", "replicant", 100, 70.0, 80, 30, 6.0, True]
    assert list(second.values()) == ["r-2", "replicant", 40, None, None, None, None, None]
    assert whole == {"told_by": "core-0", "sends": 30, "seconds": 6.0}


def test_the_status_says_by_node_what_is_left() -> None:
    first, second, whole = rows("status", BUSY, IDLE)
    assert list(first) == ["node", "role", "state", "clients", "left", "rate", "seconds", "sent"]
    assert list(first.values()) == ["r-1", "replicant", "rebalancing", 100, 25, 5.0, 5.0, 7]
    assert second["left"] == 0
    assert whole == {"told_by": "core-0", "left": 25, "seconds": 5.0}


def test_nobody_knows_when_the_last_has_gone_where_none_goes() -> None:
    assert rows("status", BUSY, STUCK)[-1] == {"told_by": "core-0", "left": 28, "seconds": None}
    assert rows("status", IDLE)[-1] == {"told_by": "core-0", "left": 0, "seconds": 0.0}
