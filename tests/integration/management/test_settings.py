"""Settings of a real cluster, changed at one node while all run."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from integration.auth.conftest import API_KEY, Configured, api
from integration.auth.raw import Raw, connects
from integration.broker.conftest import Node, eventually
from integration.ctl import run_ctl

CONFIG = """
[authentication]
allow_anonymous = true
[mqtt]
client_id_binding = "user"
[zones.other]
max_inflight = 7
"""
NO_MATCHING_SUBSCRIBERS = 0x10
NOT_AUTHORIZED = 0x87


def until_it_knows(node: Node) -> None:
    eventually(lambda: node.get("/api/v1/status")["cluster_version"] == 2, "all nodes know of settings in the log")


def settings(node: Node) -> dict[str, Any]:
    shown: dict[str, Any] = api(node, "GET", "/settings")[1]
    return shown


def change(node: Node, /, **patch: object) -> None:
    status, answer = api(node, "PATCH", "/settings", patch)
    assert status == 200, answer


async def begins(node: Node, client_id: str) -> int:
    """The reason code of a CONNECT that begins a session which outlives its connection."""
    async with await Raw.open(node.mqtt, 4) as client:
        return (await client.connect(client_id, "eve", clean=False)).reason


async def publishes(node: Node) -> int:
    async with await Raw.open(node.mqtt) as client:
        assert (await client.connect("publisher")).reason == 0
        return await client.publish("a")


async def within_a_second(holds: Any, what: str) -> None:
    deadline = time.monotonic() + 1.0
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


async def test_a_change_at_one_node_holds_at_all_and_survives_a_restart_of_them(fleet: Configured) -> None:
    fleet.configure(CONFIG)
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    until_it_knows(core)
    assert await begins(replicant, "eve-1") == 0
    change(core, quotas={"max_sessions": 1}, log={"level": "debug"}, authorization={"no_match": "deny"})
    await within_a_second(lambda: settings(replicant)["settings"]["log"]["level"] == "debug", "the replicant has it")
    assert await begins(replicant, "eve-1") == 0, "what exists continues"
    assert await begins(replicant, "eve-2") == 3
    assert await publishes(replicant) == NOT_AUTHORIZED
    eventually(
        lambda: "DEBUG   flockmq.node.access_control: client 'publisher' may not do" in replicant.command.errors(),
        "its log",
    )
    for node in (replicant, core):
        node.kill()
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    for node in (core, replicant):
        shown = settings(node)
        assert (shown["revision"], shown["settings"]["quotas"]["max_sessions"], shown["fault"]) == (1, 1, "")
    assert await publishes(replicant) == NOT_AUTHORIZED
    assert await begins(replicant, "eve-2") == 3
    change(replicant, quotas=None, authorization=None)
    assert await publishes(replicant) == NO_MATCHING_SUBSCRIBERS
    eventually(lambda: settings(core)["revision"] == 2, "the core has it, too")
    assert await begins(replicant, "eve-2") == 0


async def test_limits_of_connections_hold_from_the_next_one_on(fleet: Configured) -> None:
    fleet.configure(CONFIG)
    _, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    until_it_knows(replicant)
    async with await Raw.open(replicant.mqtt) as before:
        assert (await before.connect("before")).reason == 0
        change(replicant, mqtt={"retain_available": False, "max_inflight": 5})
        assert await before.publish("a", retain=True) == NO_MATCHING_SUBSCRIBERS
    async with await Raw.open(replicant.mqtt) as client:
        assert (await client.connect("after")).reason == 0
        client.send(0x33, b"\x00\x01a\x00\x01\x00x")
        assert (await client.answer(0xE0)).reason == 0x9A
    shown = settings(replicant)["settings"]
    assert (shown["mqtt"]["max_inflight"], shown["zones"]["other"]["max_inflight"]) == (5, 7)
    assert shown["zones"]["other"]["retain_available"] is False


async def test_what_is_for_a_zone_of_other_nodes_changes_nothing_and_is_shown(fleet: Configured) -> None:
    fleet.configure(CONFIG)
    core = fleet.core("core-0")
    fleet.configure("")
    replicant = fleet.replicant("replicant-0")
    until_it_knows(core)
    change(core, zones={"other": {"max_inflight": 9}})
    eventually(lambda: settings(replicant)["revision"] == 1, "the replicant has it")
    assert settings(replicant)["unused"] == ["zones.other.max_inflight"]
    assert settings(core)["settings"]["zones"]["other"]["max_inflight"] == 9
    assert await connects(replicant, "c") == 0


def test_nodes_begin_to_rebalance_and_stop_without_a_restart(fleet: Configured) -> None:
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    until_it_knows(core)

    def is_enabled() -> list[bool]:
        return [row["is_enabled"] for row in core.get("/api/v1/rebalance")["nodes"]]

    eventually(lambda: is_enabled() == [False, False], "both are heard")
    change(core, cluster={"rebalance": {"enabled": True, "wait": 0}}, node={"bytes_rate": "1MB/s"})
    eventually(lambda: is_enabled() == [True, True], "both rebalance")
    assert settings(replicant)["settings"]["node"]["bytes_rate"] == 1024**2
    change(replicant, cluster=None)
    eventually(lambda: is_enabled() == [False, False], "both have stopped")


def test_settings_are_changed_and_looked_at_by_ctl(fleet: Configured) -> None:
    core = fleet.core("core-0")
    until_it_knows(core)

    def ctl(*arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        done = run_ctl(core.management, "--json", "settings", *arguments, key=API_KEY)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    code, (about, *rows), _ = ctl("set", "quotas.max_sessions=100", "quotas.max_queued_bytes=1GB")
    assert (code, about["revision"], about["by"]) == (0, 1, "management.api_key")
    assert [(row["path"], row["value"]) for row in rows] == [
        ("quotas.max_sessions", 100),
        ("quotas.max_queued_bytes", 1024**3),
    ]
    assert ctl("set", "log.level=loud")[::2] == (
        1,
        f"flockmq: error: http://127.0.0.1:{core.management} says 400: log.level: 'loud' must be debug or info or "
        "warning or error\n",
    )
    assert ctl("unset", "quotas.max_queued_bytes")[0] == 0
    assert ctl("diff")[1] == [{"path": "quotas.max_queued_bytes", "revision_1": "1GB", "revision_2": None}]
    assert ctl("restore", "0")[1][0]["revision"] == 3
    assert [row["patch"] for row in ctl("history")[1]] == [
        {"quotas": None},
        {"quotas": {"max_queued_bytes": None}},
        {"quotas": {"max_queued_bytes": "1GB", "max_sessions": 100}},
    ]
    assert not any(row["changed"] for row in ctl("show")[1][1:])
