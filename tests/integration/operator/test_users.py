"""A MqttUser and a real cluster: who is let in at a replicant, by what the operator says to a core."""

from __future__ import annotations

import asyncio

import pytest

from flockmq_operator import management_access
from integration.auth.conftest import API_KEY, Configured, api
from integration.auth.raw import Raw
from integration.auth.test_users import connects, let_in
from integration.dev.commands import PATIENCE_S
from unit.operator.users.harness import JO, Town, mqtt_user

CONFIGURATION = """
[authentication]
chain = [{ mechanism = "password_based:built_in_database" }]
failed_logins = { enable = false }
[authorization]
sources = [{ type = "built_in_database" }]
"""
BAD_PASSWORD, NOT_AUTHORIZED = 0x86, 0x87


async def test_a_client_is_let_in_by_its_mqtt_user_alone_from_its_beginning_to_its_end(
    fleet: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.configure(CONFIGURATION)
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    monkeypatch.setattr(management_access, "url_of", lambda *_, **__: f"http://127.0.0.1:{core.management}")
    town = Town(API_KEY)
    town.put_password("first")
    town.world.put(mqtt_user(rules=[{"permit": "allow", "topics": ["a/${username}/#"]}]))
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

    town.delete()
    await town.look()
    assert JO not in town.world.objects
    assert api(core, "GET", "/users")[1]["count"] == 0
    assert api(core, "GET", "/rules")[1]["count"] == 0
    async with asyncio.timeout(PATIENCE_S):
        while await connects(replicant, "c", "jo", "second") != BAD_PASSWORD:
            pass
