"""One user of many client ids uses up its own quotas; another user goes on undisturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from integration.auth.conftest import Configured, api
from integration.auth.raw import Raw
from integration.broker.conftest import Node, eventually

KIB = 1024
CONFIG = """
[authentication]
chain = [{ mechanism = "password_based:built_in_database" }]

[quotas]
max_sessions = 10
max_queued_bytes = "64KB"
max_subscriptions = 20
max_retained_bytes = "16KB"
"""
QUOTA_EXCEEDED = 0x97
REFUSED_V4 = 3
FAILURE_V4 = 0x80


@pytest.fixture
def nodes(fleet: Configured) -> list[Node]:
    """Two cores and a replicant."""
    fleet.configure(CONFIG)
    found = [fleet.core("core-0"), fleet.core("core-1"), fleet.replicant("replicant-0")]
    for name in ("jo", "eve"):
        assert api(found[0], "POST", "/users", {"user_id": name, "password": "pw"})[0] == 201
    eventually(lambda: found[2].metric("flockmq_cluster_version") >= 2, "all nodes tell one another")
    return found


async def let_in(node: Node, client_id: str, user: str, *, clean: bool = False, version: int = 4) -> Raw:
    client = await Raw.open(node.mqtt, version)
    answer = await client.connect(client_id, user, "pw", clean=clean)
    assert answer.reason == 0, answer
    return client


async def reason_of(node: Node, client_id: str, user: str, version: int = 4) -> int:
    async with await Raw.open(node.mqtt, version) as client:
        return (await client.connect(client_id, user, "pw", clean=False)).reason


def row(node: Node, user: str) -> dict[str, Any]:
    rows = api(node, "GET", "/quotas")[1]["users"]
    return next((row for row in rows if row["name"] == user), {})


async def until(is_so: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(eventually, is_so, what)


def is_alarmed(node: Node, user: str) -> bool:
    return f"user-over-quota/{user}" in [alarm["name"] for alarm in node.get("/api/v5/alarms")]


async def test_a_user_begins_so_many_sessions_in_the_whole_cluster(nodes: list[Node], fleet: Configured) -> None:
    replicant = nodes[2]
    for number in range(10):
        async with await let_in(replicant, f"eve-{number}", "eve"):
            await asyncio.sleep(0.1)  # owners tell one another
    await until(lambda: [row(node, "eve").get("sessions") for node in nodes] == [10] * 3, "all nodes know")
    assert await reason_of(replicant, "eve-10", "eve") == REFUSED_V4
    async with await Raw.open(replicant.mqtt) as client:
        assert (await client.connect("eve-11", "eve", "pw")).reason == 0, "a session that ends with its connection"
    assert await reason_of(replicant, "eve-1", "eve") == 0, "one that is there goes on"
    assert await reason_of(replicant, "jo-0", "jo") == 0, "another user's"
    await until(lambda: is_alarmed(replicant, "eve"), "an alarm names it")
    status, answer = api(replicant, "GET", "/quotas")
    assert (status, answer["limits"]["max_sessions"], answer["users"][0]["over"]) == (200, 10, ["sessions"])
    assert sum(node.metric("flockmq_quota_refused_total") for node in nodes) >= 1

    core = nodes[1]
    core.kill()
    await until(lambda: row(nodes[0], "eve").get("sessions") == 10, "who took its slots counts their sessions")
    assert await reason_of(replicant, "eve-12", "eve") == REFUSED_V4
    for number in range(5):
        assert api(nodes[0], "DELETE", f"/sessions/eve-{number}")[0] == 204
    await until(lambda: not is_alarmed(replicant, "eve"), "it ends when there is room")
    assert await reason_of(replicant, "eve-12", "eve") == 0


@pytest.mark.parametrize("clean", [True, False])
async def test_a_user_has_so_many_filters_in_all_its_sessions(nodes: list[Node], clean: bool) -> None:
    here, there = nodes[0 if clean else 2], nodes[2]
    async with (
        await let_in(here, "eve-0", "eve", clean=clean) as first,
        await let_in(there, "eve-1", "eve", clean=clean, version=5 if clean else 4) as second,
        await let_in(there, "jo", "jo", clean=clean) as other,
    ):
        for number in range(20):
            assert await first.subscribe(f"a/{number}", 1) == 1
        await until(lambda: row(there, "eve").get("subscriptions") == 20, "the other node knows")
        assert await second.subscribe("b", 1) == (QUOTA_EXCEEDED if clean else FAILURE_V4)
        assert await first.subscribe("a/1", 0) == 0, "what it has it may have anew"
        assert await other.subscribe("b", 1) == 1
        await until(lambda: is_alarmed(there, "eve"), "an alarm names it")


async def test_what_waits_for_one_users_sessions_leaves_others_theirs(nodes: list[Node]) -> None:
    node = nodes[2]
    names = [f"eve-{number}" for number in range(4)]
    for name in [*names, "jo-away"]:
        async with await let_in(node, name, name.partition("-")[0]) as client:
            assert await client.subscribe(f"to/{name}", 1) == 1
    async with await let_in(node, "sender", "jo", clean=True) as sender:
        for _ in range(40):
            for name in names:
                assert await sender.publish(f"to/{name}", b"x" * KIB) in (0, 0x10)
            assert await sender.publish("to/jo-away", b"x" * KIB) in (0, 0x10), "who publishes isn't to blame"
        await until(lambda: row(node, "eve").get("over") == ["queued_bytes"], "all nodes know")
        assert row(node, "eve")["queued_bytes"] <= 64 * KIB * 1.25
        waiting = api(node, "GET", "/sessions/jo-away")[1]["queued"]
        assert waiting == 40, "another user's session lost nothing"
    assert sum(core.metric("flockmq_messages_dropped_total") for core in nodes[:2]) > 0


async def test_what_one_user_retains_or_delays_leaves_others_room(nodes: list[Node]) -> None:
    here, there = nodes[0], nodes[2]
    async with (
        await let_in(here, "eve-0", "eve", clean=True, version=5) as eve,
        await let_in(there, "eve-1", "eve", clean=True, version=5) as twin,
        await let_in(there, "jo", "jo", clean=True, version=5) as jo,
    ):
        for number in range(11):
            assert await eve.publish(f"r/{number}", b"x" * KIB, retain=True) in (0, 0x10)
        await until(lambda: row(there, "eve").get("retained_bytes", 0) > 11 * KIB, "all nodes know")
        assert await twin.publish("$delayed/3600/d", b"x" * KIB) in (0, 0x10)
        await until(lambda: row(here, "eve").get("retained_bytes", 0) > 12 * KIB, "what is delayed counts, too")
        assert await twin.publish("r", b"x" * 4 * KIB, retain=True) == QUOTA_EXCEEDED
        assert await twin.publish("$delayed/3600/d", b"x" * 4 * KIB) == QUOTA_EXCEEDED
        assert await twin.publish("r/1", b"y" * KIB, retain=True) in (0, 0x10), "in the place of its own"
        assert await jo.publish("j", b"x" * 4 * KIB, retain=True) in (0, 0x10)
        for number in range(11):
            assert await twin.publish(f"r/{number}", b"", retain=True) in (0, 0x10)
        await until(lambda: row(here, "eve").get("retained_bytes", 0) < 5 * KIB, "what it cleared made room")
        assert await eve.publish("r", b"x" * 4 * KIB, retain=True) in (0, 0x10)
