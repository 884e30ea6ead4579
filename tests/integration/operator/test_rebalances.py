"""A MqttRebalance and a real cluster: clients are sent from a node that has too many, by what the operator says to a
core."""

from __future__ import annotations

import asyncio

import pytest

from flockmq_operator import management_access
from integration.auth.conftest import API_KEY, Configured
from integration.broker.conftest import eventually
from integration.broker.test_rebalance import COUNT, crowd, row
from integration.dev.commands import PATIENCE_S
from unit.operator.rebalances.harness import MOVE, NAME, Town, mqtt_rebalance

CONFIGURATION = """
[authentication]
allow_anonymous = true
"""


async def look_until(town: Town, phase: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while town.status()["phase"] != phase:
            await asyncio.sleep(0.2)
            await town.look()


async def test_clients_are_moved_while_it_is_there_and_until_nodes_have_their_share(
    fleet: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.configure(CONFIGURATION)
    core, crowded = fleet.core("core-0"), fleet.replicant("replicant-0")
    monkeypatch.setattr(management_access, "url_of", lambda *_, **__: f"http://127.0.0.1:{core.management}")
    town = Town(API_KEY)
    with crowd(crowded):
        eventually(lambda: row(core, crowded)["clients"] == COUNT, "its heartbeat tells it")
        town.world.put(mqtt_rebalance(absoluteThreshold=2, rate=1))
        await town.look()
        assert town.how() == ("Running", "Started")
        assert row(core, crowded)["asked"]["name"] == NAME
        town.delete()
        await town.look()
        assert MOVE not in town.world.objects
        assert row(core, crowded)["asked"]["state"] == "stopped"

        town.world.put(mqtt_rebalance(uid="another one of its name", absoluteThreshold=2, rate=100))
        await town.look()
        await look_until(town, "Succeeded")
        assert town.how() == ("Succeeded", "Balanced")
        assert 0 < town.status()["moved"] <= row(core, crowded)["evicted"] < COUNT
