"""Sessions, and slots, in Redis that can't be read: another version wrote them, or something spoilt them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from flockmq.durable.pending_writes import SlotKeys
from flockmq.durable.session_fields import META
from flockmq.routing.slots import slot_of
from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, is_answered, scenario

LATER_FORM: Final = b"\xff"
"""What a session's field META begins with in a version to come."""
FILTER: Final = "$exclusive/t"
TAKEN: Final = 0x97
UNUSED_S: Final = 21.0
"""By then a core has looked twice for claims that no session uses."""


@scenario()
async def test_a_session_that_cannot_be_read_is_kept_for_an_operator(cluster: SimulatedCluster) -> None:
    subscriber = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=3600)
    await subscriber.subscribe("t")
    subscriber.disconnect()
    publisher = await Client.connect(cluster, "pub", at="replicant-2", clean=True)
    assert await publisher.publish("t", b"1") == 0
    owner = cluster.owner_of("sub")
    await cluster.hosts[owner].kill()
    stored = cluster.session_of("sub")
    stored[META] = LATER_FORM + stored[META][1:]
    before = dict(stored)
    await cluster.until_moved("sub", owner)
    assert not await is_answered(Client.connect(cluster, "sub", at="replicant-1", expiry_s=3600))
    assert cluster.session_of("sub") == before
    assert await cluster.alarms()
    assert not (await Client.connect(cluster, "sub", at="replicant-1", clean=True)).present
    assert not cluster.session_of("sub")
    await asyncio.sleep(1.0)
    assert not await cluster.alarms()


@scenario()
async def test_nobody_gets_the_exclusive_filter_of_a_session_that_cannot_be_read(cluster: SimulatedCluster) -> None:
    """It has it when a release that can read it is back."""
    holder = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=3600)
    rival = await Client.connect(cluster, "rival", at="replicant-2", clean=True)
    assert await holder.subscribe(FILTER) == 1
    holder.disconnect()
    owner = cluster.owner_of("sub")
    await cluster.hosts[owner].kill()
    cluster.session_of("sub")[META] = LATER_FORM + cluster.session_of("sub")[META][1:]
    await cluster.until_moved("sub", owner)
    await asyncio.sleep(UNUSED_S)
    assert await rival.subscribe(FILTER) == TAKEN
    assert await ended(cluster, "sub")
    await asyncio.sleep(UNUSED_S)
    assert await rival.subscribe(FILTER) == 1


@scenario()
async def test_an_operator_ends_a_session_that_cannot_be_read(cluster: SimulatedCluster) -> None:
    await Client.connect(cluster, "sub", at="replicant-1", expiry_s=3600)
    owner = cluster.owner_of("sub")
    await cluster.hosts[owner].kill()
    cluster.session_of("sub")[META] = LATER_FORM
    await cluster.until_moved("sub", owner)
    assert await ended(cluster, "sub")
    assert not cluster.session_of("sub")
    assert not (await Client.connect(cluster, "sub", at="replicant-1", expiry_s=3600)).present
    assert not await cluster.alarms()


@scenario()
async def test_an_operator_ends_a_session_and_its_connection(cluster: SimulatedCluster) -> None:
    subscriber = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=3600)
    assert await ended(cluster, "sub")
    await subscriber.until_closed()
    assert not (await Client.connect(cluster, "sub", at="replicant-1", expiry_s=3600)).present
    assert not await ended(cluster, "another"), "there is none"
    await Client.connect(cluster, "its connection's", at="replicant-1", clean=True)
    assert await ended(cluster, "its connection's")


async def ended(cluster: SimulatedCluster, client: str) -> bool:
    """As whoever asks replicant-2 for it hears."""
    replicant = cluster.nodes["replicant-2"]
    assert replicant.process is not None
    asked = replicant.running.node.directory.end_session(client)
    return await asyncio.create_task(asked, context=replicant.process.context)


@scenario()
async def test_a_slot_that_cannot_be_read_holds_up_no_other(cluster: SimulatedCluster) -> None:
    spoilt, other = cluster.clients_of("core-1", 2)
    for name in (spoilt, other):
        subscriber = await Client.connect(cluster, name, at="replicant-1", expiry_s=3600)
        await subscriber.subscribe(name)
        subscriber.disconnect()
    await cluster.hosts["core-1"].kill()
    keys = cluster.redis_of(spoilt).server.keys
    marks = SlotKeys(slot_of(spoilt.encode())).marks
    keys.values[marks] = b"of a wrong type"
    await cluster.until_moved(spoilt, "core-1")
    publisher = await Client.connect(cluster, "pub", at="replicant-2", clean=True)
    publisher.send(spoilt, b"1")
    assert await is_answered(check_comes(cluster, other))
    assert not await is_answered(Client.connect(cluster, spoilt, at="replicant-1", expiry_s=3600))
    assert await cluster.alarms()
    del keys.values[marks]
    await check_comes(cluster, spoilt, [b"1", b"2"])
    assert not await cluster.alarms()


async def check_comes(cluster: SimulatedCluster, name: str, payloads: Sequence[bytes] = (b"2",)) -> None:
    publisher = await Client.connect(cluster, f"for-{name}", at="replicant-1", clean=True)
    assert await publisher.publish(name, b"2") == 0
    back = await Client.connect(cluster, name, at="replicant-2", expiry_s=3600)
    assert back.present
    for payload in payloads:
        assert await back.receives(payload)
