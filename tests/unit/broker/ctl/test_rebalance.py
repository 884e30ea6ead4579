"""The tables of `flockmq ctl rebalance`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from flockmq.ctl import rebalance
from flockmq.ctl.api import Api, Row
from flockmq.management.rebalance_rows import AskedProgress, RebalanceRow, RebalanceShown

BUSY = RebalanceRow(
    node="r-1", role="replicant", state="rebalancing", clients=100, is_enabled=True, load=101.5,
    mean=70.0, begins_above=80, planned=30, planned_s=6.0, left=25, rate=5.0, left_s=5.0, evicted=7,
    asked=AskedProgress(name="Jo", state="running", moved=7),
)  # fmt: skip
IDLE = RebalanceRow(node="r-2", role="replicant", state="idle", clients=40)
STUCK = RebalanceRow(node="r-3", role="replicant", state="draining", clients=3, left=3)


class Asked:
    """A node's API that answers with these rows, and remembers what it was asked."""

    def __init__(self, *nodes: RebalanceRow, missing: tuple[str, ...] = ()) -> None:
        self.shown = msgspec.to_builtins(RebalanceShown(told_by="core-0", nodes=nodes, missing=missing))
        self.requests: list[tuple[object, ...]] = []

    def ask(self, *request: object) -> Row:
        self.requests.append(request)
        return cast(Row, self.shown)

    def delete(self, path: str) -> Iterator[Row]:
        self.requests.append(("DELETE", path))
        return iter(())

    def run(self, *arguments: str) -> list[dict[str, Any]]:
        parser = argparse.ArgumentParser()
        rebalance.add(parser.add_subparsers())
        options = parser.parse_args(arguments)
        return list(options.do(cast(Api, self), options))


def rows(verb: str, *nodes: RebalanceRow) -> list[dict[str, Any]]:
    return Asked(*nodes).run(verb)


def test_the_plan_says_by_node_what_it_would_send_and_when_the_last_has_gone() -> None:
    first, second, whole = rows("plan", BUSY, IDLE)
    assert list(first) == ["node", "role", "clients", "load", "mean", "begins_above", "sends", "seconds", "enabled"]
    assert list(first.values()) == ["r-1", "replicant", 100, 101.5, 70.0, 80, 30, 6.0, True]
    assert list(second.values()) == ["r-2", "replicant", 40, None, None, None, None, None, None]
    assert whole == {"told_by": "core-0", "sends": 30, "seconds": 6.0}


def test_the_status_says_by_node_what_is_left() -> None:
    first, second, whole = rows("status", BUSY, IDLE)
    assert list(first) == ["node", "role", "state", "clients", "left", "rate", "seconds", "sent", "asked"]
    assert list(first.values()) == ["r-1", "replicant", "rebalancing", 100, 25, 5.0, 5.0, 7, "running Jo"]
    assert (second["left"], second["asked"]) == (0, None)
    assert whole == {"told_by": "core-0", "left": 25, "seconds": 5.0}


def test_nobody_knows_when_the_last_has_gone_where_none_goes() -> None:
    assert rows("status", BUSY, STUCK)[-1] == {"told_by": "core-0", "left": 28, "seconds": None}
    assert rows("status", IDLE)[-1] == {"told_by": "core-0", "left": 0, "seconds": 0.0}


def test_a_plan_is_asked_for_with_the_thresholds_that_are_given() -> None:
    asked = Asked(IDLE)
    asked.run("plan", "--relative-threshold", "1.2", "--absolute-threshold", "5", "--messages-weight", "0")
    assert asked.requests == [("GET", "/rebalance?relative_threshold=1.2&absolute_threshold=5&messages_weight=0.0")]


def test_one_is_started_with_what_is_given_and_says_which_node_does_not_know(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = Asked(BUSY, missing=("r-9 (doesn't answer)",))
    first, _ = asked.run("start", "--rate", "50", "--wait", "5", "--settle", "30", "--node", "r-1")
    assert asked.requests == [("PUT", "/rebalance", {"rate": 50.0, "wait": 5.0, "settle": 30.0, "node": "r-1"})]
    assert first["state"] == "rebalancing"
    assert capsys.readouterr().err == "flockmq ctl: it goes on without a node: r-9 (doesn't answer)\n"


def test_one_is_stopped_everywhere_or_at_a_node() -> None:
    asked = Asked()
    asked.run("stop")
    asked.run("stop", "--node", "r 1")
    assert asked.requests == [("DELETE", "/rebalance"), ("DELETE", "/rebalance?node=r+1")]


@pytest.mark.parametrize("text", ["nan", "inf", "many"])
def test_what_is_no_number_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Asked().run("start", "--rate", text)
    assert f"argument --rate: '{text}' must be a number" in capsys.readouterr().err
