"""A client id is its user's: nobody else gets its session, its messages, or has its connection closed."""

from __future__ import annotations

import asyncio

import pytest

from integration.auth.conftest import Configured, api
from integration.auth.raw import PUBLISH, Ended, Raw
from integration.broker.conftest import Node

USERS = """
[authentication]
allow_anonymous = true
chain = [{ mechanism = "password_based:built_in_database" }]
"""
EVE = ("eve", "pw")
NOBODY = (None, None)


@pytest.fixture
def nodes(fleet: Configured) -> tuple[Node, Node]:
    fleet.configure(USERS)
    core = fleet.core("core-0")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    for name in ("jo", "eve"):
        assert api(core, "POST", "/users", {"user_id": name, "password": "pw"})[0] == 201
    return here, there


async def let_in(node: Node, client_id: str, user: str) -> Raw:
    """Once the node knows of the user."""
    async with asyncio.timeout(30):
        while True:
            client = await Raw.open(node.mqtt, 4)
            if (await client.connect(client_id, user, "pw", clean=False)).reason == 0:
                return client
            await client.__aexit__()


@pytest.mark.parametrize("thief", [EVE, NOBODY])
@pytest.mark.parametrize("clean", [True, False])
async def test_who_knows_a_client_id_gets_nothing_of_another_user(
    nodes: tuple[Node, Node], thief: tuple[str | None, str | None], clean: bool
) -> None:
    here, there = nodes
    async with await let_in(there, "eves", "eve"), await let_in(here, "device", "jo") as device:
        assert await device.subscribe("secret", 1) == 1
        for version, reason in ((5, 0x85), (4, 2)):
            async with await Raw.open(there.mqtt, version) as other:
                assert (await other.connect("device", *thief, clean=clean)).reason == reason
                with pytest.raises(Ended):
                    await other.answer()
        assert await device.publish("secret") in (0, 0x10)
        assert (await device.answer(PUBLISH)).kind == PUBLISH, "it is connected still"
    async with await Raw.open(there.mqtt, 4) as other:
        assert (await other.connect("device", *thief, clean=clean)).reason == 2, "nor what waits for it"
    async with await Raw.open(there.mqtt, 4) as device:
        assert (await device.connect("device", "jo", "pw", clean=False)).reason == 0


async def test_a_clean_connection_is_its_users_until_it_ends(nodes: tuple[Node, Node]) -> None:
    here, there = nodes
    async with await let_in(there, "eves", "eve"), await let_in(here, "jos", "jo"):
        async with await Raw.open(here.mqtt) as device:
            assert (await device.connect("device", "jo", "pw")).reason == 0
            async with await Raw.open(there.mqtt) as other:
                assert (await other.connect("device", *EVE)).reason == 0x85
            async with await Raw.open(there.mqtt) as newer:
                assert (await newer.connect("device", "jo", "pw")).reason == 0
                assert (await device.ended()).reason == 0x8E, "the same user takes it over"
        async with asyncio.timeout(30):
            reason = -1
            while reason != 0:
                async with await Raw.open(there.mqtt) as other:
                    reason = (await other.connect("device", *EVE)).reason
                    assert reason in (0, 0x85)


async def test_client_ids_may_be_anybodys(fleet: Configured) -> None:
    node = fleet.single(USERS + '[mqtt]\nclient_id_binding = "none"\n')
    async with await Raw.open(node.mqtt) as one, await Raw.open(node.mqtt) as other:
        for name in ("jo", "eve"):
            api(node, "POST", "/users", {"user_id": name, "password": "pw"})
        assert (await one.connect("device", "jo", "pw")).reason == 0
        assert (await other.connect("device", *EVE)).reason == 0
        assert (await one.ended()).reason == 0x8E
