"""Keys with roles and the audit log of a real cluster: made at one node, good at all, and everywhere the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.auth.conftest import API_KEY, Configured, api
from integration.broker.conftest import Node, eventually
from integration.ctl import run_ctl


def ctl(node: Node, key: str, *arguments: str) -> tuple[int, list[dict[str, str]], str]:
    done = run_ctl(node.management, *arguments, key=key)
    rows = [dict(cell.split("=", 1) for cell in line.split("\t")) for line in done.stdout.splitlines()]
    return done.returncode, rows, done.stderr


def shown(fleet: Configured, node: Node) -> list[tuple[Any, ...]]:
    _, page = api(node, "GET", "/audit")
    return [(row["who"], row["node"], row["method"], row["path"], row["about"]) for row in page["data"]]


def test_a_key_made_at_one_node_is_good_at_all(fleet: Configured, monkeypatch: pytest.MonkeyPatch) -> None:
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    eventually(lambda: core.get("/api/v1/status")["cluster_version"] == 2, "all nodes know of keys")
    eventually(lambda: replicant.get("/api/v1/status")["cluster_version"] == 2, "and this one knows that")
    _, (made,), _ = ctl(replicant, API_KEY, "keys", "add", "ops", "--role", "operator", "--for", "1h")
    key = made["key"]
    eventually(lambda: ctl(core, key, "bans", "list")[0] == 0, "the core knows the key")
    assert ctl(core, key, "bans", "add", "clientid", "bad")[0] == 0
    code, _, said = ctl(core, key, "keys", "list")
    assert code == 1
    assert "403: it takes a key of the role admin; 'ops' has the role operator" in said
    assert [row["name"] for row in ctl(core, API_KEY, "keys", "list")[1]] == ["ops"]
    expected = [
        ("ops", "core-0", "POST", "/api/v1/bans", "clientid bad"),
        ("management.api_key", "replicant-0", "POST", "/api/v1/keys", "ops: operator"),
    ]
    for node in (core, replicant):
        eventually(lambda node=node: shown(fleet, node) == expected, "every node has the audit log")  # type: ignore[misc]
    assert [row["who"] for row in ctl(replicant, key, "audit", "list")[1]] == ["ops", "management.api_key"]
    assert [row["who"] for row in ctl(replicant, key, "audit", "list", "--limit", "1")[1]] == ["ops"]
    assert ctl(replicant, API_KEY, "keys", "remove", "ops")[0] == 0
    assert ctl(replicant, key, "audit", "list")[0] == 1
    eventually(lambda: ctl(core, key, "audit", "list")[0] == 1, "the core has forgotten it")


def test_a_short_key_ends_the_node_at_its_start(fleet: Configured) -> None:
    fleet.key_file.write_text("too short")
    file = Path(fleet.file)
    command = [sys.executable, "-P", "-m", "flockmq", "run", "--config", str(file), "--management", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "management.api_key_file: the key must have at least 32 bytes; make one at random" in done.stderr
