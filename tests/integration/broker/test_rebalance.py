"""What `flockmq ctl rebalance` and `/api/v1/rebalance` tell of a cluster, from any node."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

from integration.broker.clients import Client
from integration.broker.conftest import Fleet, Node, eventually

KEY: Final = "an integration test's API key, of an admin"
PLANNED: Final = {
    "FLOCKMQ_MANAGEMENT__API_KEY": KEY,
    "FLOCKMQ_CLUSTER__EVICTION_RATE": "1",
    "FLOCKMQ_CLUSTER__REBALANCE__ABSOLUTE_THRESHOLD": "2",
}
ON: Final = PLANNED | {"FLOCKMQ_CLUSTER__REBALANCE__ENABLED": "true", "FLOCKMQ_CLUSTER__REBALANCE__WAIT": "1s"}
COUNT: Final = 32


def test_any_node_tells_what_rebalancing_would_do_and_does(fleet: Fleet) -> None:
    core = fleet.core("core-0")
    planned, shedding = fleet.replicant("replicant-0", **PLANNED), fleet.replicant("replicant-1", **ON)
    nodes = (core, planned, shedding)
    with crowd(planned):
        eventually(lambda: row(core, planned)["clients"] == COUNT, "its heartbeat tells it")
        eventually(lambda: all(row(node, planned)["begins_above"] == 12 for node in nodes), "all take clients")
        for node in nodes:
            told = row(node, planned)
            assert (told["planned"], told["planned_s"]) == (21, 21.0)
            assert (told["state"], told["is_enabled"], row(node, shedding)["is_enabled"]) == ("idle", False, True)
        head, *lines = ctl(planned, "rebalance", "plan")
        assert head.split() == [
            "node",
            "role",
            "clients",
            "load",
            "mean",
            "begins",
            "above",
            "sends",
            "seconds",
            "enabled",
        ]
        assert lines[1].split() == ["replicant-0", "replicant", "32", "32.000", "10.667", "12", "21", "21.000", "no"]
        assert lines[-1].split() == ["core-0", "21", "21.000"]
    eventually(lambda: row(core, planned)["clients"] == 0, "they have left")
    with crowd(shedding):
        eventually(lambda: all(row(node, shedding)["state"] == "rebalancing" for node in nodes), "it sheds")
        eventually(lambda: row(core, shedding)["evicted"] >= 2, "clients have gone")
        told = row(core, shedding)
        assert (told["state"], told["rate"]) == ("rebalancing", 1.0)
        assert 0 < told["left"] == told["left_s"] <= 21
        ctl(shedding, "evacuate", "start")
        eventually(lambda: row(planned, shedding)["state"] == "draining", "and drains")
        line = next(line.split() for line in ctl(core, "rebalance", "status") if line.startswith("replicant-1"))
        assert line[:3] == ["replicant-1", "replicant", "draining"]
        assert line[3] == line[4]


def test_one_is_started_and_ended_by_ctl_at_any_node(fleet: Fleet) -> None:
    core = fleet.core("core-0")
    crowded, other = fleet.replicant("replicant-0", **PLANNED), fleet.replicant("replicant-1", **PLANNED)
    with crowd(crowded):
        eventually(lambda: row(core, crowded)["clients"] == COUNT, "its heartbeat tells it")
        ctl(other, "rebalance", "start", "--rate", "2")
        eventually(lambda: row(other, crowded)["state"] == "rebalancing", "it sends clients away")
        told = row(core, crowded)
        assert (told["asked"]["state"], told["is_enabled"], told["rate"]) == ("running", False, 2.0)
        ctl(other, "rebalance", "stop")
        line = next(line.split() for line in ctl(core, "rebalance", "status") if line.startswith("replicant-0"))
        assert (line[2], line[-1]) == ("idle", "stopped")


@contextlib.contextmanager
def crowd(node: Node) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for number in range(COUNT):
            stack.enter_context(Client(node.mqtt, f"device-{number}"))
        yield


def row(node: Node, of: Node) -> dict[str, Any]:
    return next(row for row in node.get("/api/v1/rebalance")["nodes"] if row["node"] == of.name)


def ctl(node: Node, *arguments: str) -> list[str]:
    command = [sys.executable, "-P", "-m", "flockmq", "ctl", "--url", f"http://127.0.0.1:{node.management}", *arguments]
    environment = os.environ | {"FLOCKMQ_API_KEY": KEY}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()
