"""Cores that are taken off the cluster by `flockmq ctl cluster leave` and `forget`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from integration.broker.clients import Client
from integration.broker.conftest import Fleet, Node, eventually
from integration.dev.commands import PATIENCE_S

KEY: Final = "an integration test's API key, of an admin"
WITH_KEY: Final = {"FLOCKMQ_MANAGEMENT__API_KEY": KEY}


def ctl(node: Node, *arguments: str) -> tuple[int, str]:
    """Its exit code, and its output or its error."""
    command = [sys.executable, "-P", "-m", "flockmq", "ctl", "--url", f"http://127.0.0.1:{node.management}", *arguments]
    environment = os.environ | {"FLOCKMQ_API_KEY": KEY}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def slots(node: Node) -> dict[str, int]:
    """Of each core that is ready, as `node` knows it."""
    return {row["name"]: row["slots"] for row in node.get("/api/v5/cluster")["nodes"] if row["ready"]}


def counting(number: int) -> dict[str, str]:
    return WITH_KEY | {"FLOCKMQ_CLUSTER__CORES": str(number)}


def test_a_core_leaves_and_does_not_come_back_by_itself(fleet: Fleet, tmp_path: Path) -> None:
    first, second = fleet.cores("core-0", "core-1", **counting(2))
    leaving = fleet.core("core-2", **counting(3))
    eventually(lambda: sorted(slots(first).values()) == [341, 341, 342], "slots are spread")
    assert refusal(second, "leave") == (
        "core-1 can't go: cluster.cores is 3 on core-2: set it to 2 or fewer there, restart one after the other, each "
        "when all cores that stay are ready, then try again"
    )
    with Client(leaving.mqtt, "device", lasts=True) as client:
        client.subscribe("t", 1)
        code, told = ctl(leaving, "cluster", "leave")
        file = tmp_path / "core-2" / "left-cluster"
        assert (code, told) == (0, f"node=core-2\tclients=1\tslots=341\tfile={file}\n")
        assert leaving.command.process.wait(PATIENCE_S) == 0
        assert client.disconnected.wait(PATIENCE_S)
        assert client.reason == "Use another server"
    eventually(lambda: slots(first) == {"core-0": 512, "core-1": 512}, "the others have its slots")
    with Client(first.mqtt, "device", lasts=True) as client:
        assert client.session_present
        assert fleet.refused_core("core-2") == (
            5,
            f"this core left its cluster, and isn't to come back by itself: delete {file} to have it join again",
        )
        file.unlink()
        fleet.core("core-2", **counting(2))
        eventually(lambda: len(slots(first)) == 3, "it is a core again")
        assert not client.disconnected.is_set()


def test_a_dead_core_is_forgotten_when_nobody_counts_it(fleet: Fleet) -> None:
    first, second, third = fleet.cores("core-0", "core-1", "core-2", **counting(3))
    replicant = fleet.replicant("replicant-0", **WITH_KEY)
    eventually(lambda: len(slots(first)) == 4, "all are ready")
    assert refusal(first, "forget", "core-2") == "core-2 is alive: core-0 has a link to it; tell it to leave instead"
    assert refusal(replicant, "forget", "core-2") == "replicant-0 is no core: ask a core"
    assert refusal(first, "forget", "replicant-0").startswith("replicant-0 is a replicant, and no majority counts it")
    third.kill()
    eventually(lambda: "core-2" not in slots(first), "it is dead")
    assert "cluster.cores is 3 on core-0, core-1: set it to 2 or fewer there" in refusal(first, "forget", "core-2")
    second.kill()
    eventually(lambda: "core-1" not in slots(first), "a majority is dead")
    assert "a majority would be lost: of 3 cores only" in refusal(first, "forget", "core-2")
    second = fleet.core("core-1", **counting(2))
    eventually(lambda: slots(first).get("core-1") == 512, "it is back")
    first.command.end(signal.SIGTERM)
    first = fleet.core("core-0", **counting(2))
    eventually(lambda: slots(first) == {"core-0": 512, "core-1": 512, "replicant-0": 0}, "both are ready")
    assert ctl(second, "cluster", "forget", "core-2") == (0, 'node=core-2\tcores=["core-0","core-1"]\n')


def refusal(node: Node, *arguments: str) -> str:
    code, told = ctl(node, "cluster", *arguments)
    url, refused, why = told.partition(" says 409: ")
    assert (code, refused) == (1, " says 409: "), url
    return why.rstrip("\n")
