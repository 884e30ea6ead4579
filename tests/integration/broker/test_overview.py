"""What any node tells of the whole cluster: over HTTP, in metrics, and by `flockmq ctl`."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from integration.broker.clients import Client
from integration.broker.conftest import Fleet, Node, eventually
from integration.ctl import run_ctl


def ctl(node: Node, *arguments: str) -> list[str]:
    """Its lines; no key is needed."""
    done = run_ctl(node.management, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def rows(node: Node, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ctl(node, "--json", *arguments)]


def test_any_node_shows_every_nodes_log(fleet: Fleet) -> None:
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    with Client(replicant.mqtt, "subscriber") as subscriber:
        subscriber.subscribe("a/+")
        for node in (core, replicant):
            shown = {(row["node"], row["shard"]): row for row in rows(node, "rlog", "status")}
            assert len(shown) == 2 * 4
            here, there = shown["core-0", "route"], shown["replicant-0", "route"]
            assert here["role"] == "core"
            assert here["last_intercepted_trans"] > 0
            assert there["bootstraps"] == 1
        eventually(lambda: alike(rows(core, "rlog", "status"), "route"), "both nodes' tables are alike")
    head, *lines = ctl(replicant, "rlog", "status")
    assert head.split()[:5] == ["node", "role", "shard", "applied", "lag"]
    assert [line.split()[:3] for line in lines if "route" in line] == [
        ["core-0", "core", "route"],
        ["replicant-0", "replicant", "route"],
    ]


def alike(shown: list[dict[str, Any]], shard: str) -> bool:
    logs = [row for row in shown if row["shard"] == shard]
    return len({row["applied"] for row in logs}) == 1 and logs[0]["digests"] == logs[1]["digests"]


def test_any_node_shows_every_node(fleet: Fleet) -> None:
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    for node in (core, replicant):
        eventually(lambda node=node: told(node)["leader"] == "core-0", "there is a leader")  # type: ignore[misc]
        eventually(lambda node=node: nodes(node)["core-0"]["slots"] == 1024, "slots have an owner")  # type: ignore[misc]
        assert told(node) == {"told_by": "core-0", "stale": False, "leader": "core-0", "slots_without_owner": 0}
        eventually(lambda node=node: nodes(node)["core-0"]["replicants"] == 1, "the core counts it")  # type: ignore[misc]
        assert nodes(node)["replicant-0"]["writes_through"] == "core-0"
        assert nodes(node)["replicant-0"]["state"] == "ready"
    head, *lines = ctl(replicant, "cluster", "status")
    assert head.split()[:4] == ["node", "role", "version", "state"]
    assert lines[2:] == ["", "told by  stale  leader  slots without owner", "core-0   no     core-0  0"]
    core.kill()
    eventually(lambda: told(replicant)["told_by"] == "replicant-0", "it tells what it knows itself")
    eventually(lambda: told(replicant)["stale"], "and that it may be old")
    assert nodes(replicant)["core-0"]["state"] == "unheard"
    assert [row["shard"] for row in rows(replicant, "rlog", "status") if row["node"] == "core-0"] == ["-"]


def nodes(node: Node) -> dict[str, dict[str, Any]]:
    return {row["node"]: row for row in rows(node, "cluster", "status") if "node" in row}


def told(node: Node) -> dict[str, Any]:
    return rows(node, "cluster", "status")[-1]


def test_metrics_tell_of_each_shard_what_mria_would(fleet: Fleet) -> None:
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    eventually(lambda: "flockmq_rlog_replicants 1.0" in metrics(core), "the core counts its replicant")
    for name in ("last_intercepted_trans", "server_mql"):
        assert f'flockmq_rlog_{name}{{shard="route"}} ' in metrics(core)
        assert f'flockmq_rlog_{name}{{shard="route"}} ' not in metrics(replicant)
    for name in ("lag_entries", "lag_seconds", "bootstrap_num_keys", "message_queue_len", "replayq_len"):
        assert f'flockmq_rlog_{name}{{shard="route"}} 0.0' in metrics(replicant)
    assert 'flockmq_rlog_bootstrap_time_seconds{shard="route"} 0.' in metrics(replicant)
    assert "flockmq_rlog_weight " in metrics(core)
    eventually(lambda: "flockmq_stale 0.0" in metrics(replicant), "the core said how far the log reaches")


def metrics(node: Node) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{node.management}/metrics", timeout=30) as answer:
        return str(answer.read().decode())
