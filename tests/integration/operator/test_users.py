"""A MqttUser and a real cluster: who is let in at a replicant, by what the operator says to a core."""

from __future__ import annotations

import asyncio

import pytest

from flockmq_operator import management_access
from integration.auth.conftest import API_KEY, Configured, api
from integration.auth.raw import Raw
from integration.auth.test_users import connects, let_in
from integration.broker.conftest import eventually
from integration.dev.commands import PATIENCE_S
from unit.operator.users.harness import JO, Town, mqtt_user

CONFIGURATION = """
[authentication]
chain = [{ mechanism = "password_based:built_in_database" }]
failed_logins = { enable = false }
[authorization]
sources = [{ type = "built_in_database" }]
"""
BAD_PASSWORD, NOT_AUTHORIZED, QUOTA_EXCEEDED = 0x86, 0x87, 0x97


async def test_a_client_is_let_in_by_its_mqtt_user_alone_from_its_beginning_to_its_end(
    fleet: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.configure(CONFIGURATION)
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    monkeypatch.setattr(management_access, "url_of", lambda *_, **__: f"http://127.0.0.1:{core.management}")
    town = Town(API_KEY)
    town.put_password("first")
    eventually(lambda: core.metric("flockmq_cluster_version") >= 2, "quotas of single users can be set")
    quotas = {"maxSubscriptions": 2, "maxRetainedBytes": "1KB"}
    town.world.put(mqtt_user(rules=[{"permit": "allow", "topics": ["a/${username}/#"]}], quotas=quotas))
    assert (await town.look()).changed
    assert town.reason() == "Applied"
    await let_in(replicant, "c", "jo", "first")

    async with await Raw.open(replicant.mqtt) as client:
        await client.connect("c", "jo", "first")
        assert await client.subscribe("a/jo/#") == 0
        assert await client.subscribe("b/#") == NOT_AUTHORIZED
        assert not (await town.look()).changed
        town.put_password("first", version=2)
        await town.look()
        assert await client.subscribe("a/jo/b") == 0, "the same password disconnects nobody"
        town.put_password("second", version=3)
        await town.look()
        assert (await client.ended()).reason == NOT_AUTHORIZED
    await let_in(replicant, "c", "jo", "second")
    assert await connects(replicant, "c", "jo", "first") == BAD_PASSWORD

    town.told()
    assert api(core, "PUT", "/users/jo", {"password": "by hand"})[0] == 200
    await town.look()
    assert town.told() == ["Mended"]
    await let_in(replicant, "c", "jo", "second")

    async with await Raw.open(replicant.mqtt) as client:
        await client.connect("c", "jo", "second")
        assert [await client.subscribe(f"a/jo/{number}") for number in range(3)] == [0, 0, QUOTA_EXCEEDED]
        assert await client.publish("a/jo/r", b"x" * 1024, retain=True) == QUOTA_EXCEEDED
        town.edit(quotas={"maxSubscriptions": 3})
        await town.look()
        assert api(core, "GET", "/quotas/jo") == (200, {"name": "jo", "max_subscriptions": 3})
        eventually(lambda: "max_subscriptions" in api(replicant, "GET", "/quotas/jo")[1], "the log tells")
        eventually(lambda: "max_retained_bytes" not in api(replicant, "GET", "/quotas/jo")[1], "the log tells")
        assert [await client.subscribe(f"a/jo/{number}") for number in (3, 4)] == [0, QUOTA_EXCEEDED]
        assert await client.publish("a/jo/r", b"x" * 1024, retain=True) in (0, 0x10)

    town.delete()
    await town.look()
    assert JO not in town.world.objects
    assert api(core, "GET", "/users")[1]["count"] == 0
    assert api(core, "GET", "/rules")[1]["count"] == 0
    assert api(core, "GET", "/quotas")[1]["count"] == 0
    async with asyncio.timeout(PATIENCE_S):
        while await connects(replicant, "c", "jo", "second") != BAD_PASSWORD:
            pass
