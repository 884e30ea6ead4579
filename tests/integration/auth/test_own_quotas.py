"""Quotas of single users: said to one node, they hold on all, and stay."""

from __future__ import annotations

import asyncio

from integration.auth.conftest import Configured, api
from integration.auth.test_quotas import KIB, QUOTA_EXCEEDED, REFUSED_V4, let_in, reason_of, row, until
from integration.broker.conftest import Node, eventually

CONFIG = """
[authentication]
chain = [{ mechanism = "password_based:built_in_database" }]

[quotas]
max_sessions = 4
max_subscriptions = 10
max_retained_bytes = "4KB"
"""


def started(fleet: Configured) -> list[Node]:
    """Two cores and a replicant."""
    return [*fleet.cores("core-0", "core-1"), fleet.replicant("replicant-0")]


async def begun(node: Node, user: str, sessions: int) -> list[int]:
    """The answers to as many new sessions of this user."""
    answers = []
    for number in range(sessions):
        answers.append(await reason_of(node, f"{user}-{number}", user))
        await asyncio.sleep(0.1 if number else 1.5)  # owners tell one another, of a first session each second
    return answers


async def test_one_user_may_have_less_and_one_more_than_the_settings_say(fleet: Configured) -> None:
    fleet.configure(CONFIG)
    core, other, replicant = started(fleet)
    for name in ("ann", "eve", "jo"):
        assert api(core, "POST", "/users", {"user_id": name, "password": "pw"})[0] == 201
    eventually(lambda: replicant.metric("flockmq_cluster_version") >= 2, "all nodes know of quotas of single users")
    less = {"max_sessions": 2, "max_subscriptions": 3, "max_retained_bytes": "2KB"}
    more = {"max_sessions": 6, "max_subscriptions": "infinity", "max_retained_bytes": "64KB"}
    assert api(core, "PUT", "/quotas/eve", less) == (200, {"name": "eve", **less, "max_retained_bytes": 2 * KIB})
    assert api(core, "PUT", "/quotas/jo", more)[0] == 200
    eventually(lambda: api(replicant, "GET", "/quotas")[1]["count"] == 2, "the log tells all nodes")

    assert await begun(replicant, "eve", 3) == [0, 0, REFUSED_V4]
    assert await begun(replicant, "ann", 5) == [0, 0, 0, 0, REFUSED_V4]
    assert await begun(replicant, "jo", 7) == [0, 0, 0, 0, 0, 0, REFUSED_V4]
    async with (
        await let_in(other, "of-eve", "eve", clean=True, version=5) as eve,
        await let_in(other, "of-jo", "jo", clean=True, version=5) as jo,
    ):
        assert [await eve.subscribe(f"a/{number}", 1) for number in range(4)] == [1, 1, 1, QUOTA_EXCEEDED]
        assert [await jo.subscribe(f"a/{number}", 1) for number in range(12)] == [1] * 12
        assert await eve.publish("e", b"x" * 2 * KIB, retain=True) == QUOTA_EXCEEDED
        assert await jo.publish("j", b"x" * 8 * KIB, retain=True) in (0, 0x10)
    await until(lambda: row(replicant, "eve").get("limits", {}).get("max_sessions") == 2, "the list shows it")

    # They stay when all nodes end, and change while nodes run.
    for node in (core, other, replicant):
        node.kill()
    core, other, replicant = started(fleet)
    eventually(lambda: row(replicant, "eve").get("sessions") == 2, "who has its sessions counts them")
    assert await reason_of(other, "eve-2", "eve") == REFUSED_V4
    assert api(replicant, "DELETE", "/quotas/eve")[0] == 204
    eventually(lambda: api(other, "GET", "/quotas/eve")[0] == 404, "the log tells all nodes")
    assert await reason_of(other, "eve-2", "eve") == 0, "the settings hold again"
    assert api(replicant, "PUT", "/quotas/jo", {"max_sessions": 1})[0] == 200
    eventually(lambda: api(other, "GET", "/quotas/jo")[1] == {"name": "jo", "max_sessions": 1}, "the log tells")
    assert await reason_of(other, "jo-1", "jo") == 0, "a session that is there goes on"
    assert await reason_of(other, "jo-6", "jo") == REFUSED_V4
