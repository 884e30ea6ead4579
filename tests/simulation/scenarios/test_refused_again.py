"""A QoS 2 message was refused (0x97), and its packet id is used for another one, which is acknowledged: that comes."""

from __future__ import annotations

import asyncio

import pytest

from conformance import wire
from faults.inject import CROWDED_PART
from load.link import acknowledgement
from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

ON_THE_WAY_S = 0.05


@pytest.mark.parametrize("dies", [False, True])
@scenario()
async def test_what_has_the_packet_id_of_a_refused_message_comes(cluster: SimulatedCluster, dies: bool) -> None:
    (publisher,) = cluster.clients_of("core-1", 1)
    (subscriber,) = cluster.clients_of("core-2", 1)
    away = await Client.connect(cluster, "away", at="replicant-1", expiry_s=600)
    assert await away.subscribe("full", 1) == 1
    away.drop()
    sub = await Client.connect(cluster, subscriber, at="replicant-1", expiry_s=600)
    assert await sub.subscribe("t", 2) == 2
    pub = await Client.connect(cluster, publisher, at="replicant-2", expiry_s=600)
    cluster.redis[0].limit_memory(CROWDED_PART)
    await asyncio.sleep(4.0)
    cluster.slow("replicant-2", "core-1", ON_THE_WAY_S)
    answers = [asyncio.create_task(pub._answer(wire.PUBREC, packet_id)) for packet_id in (1, 2)]
    pub.send("full", b"refused", 2, packet_id=1)
    pub.send("t", b"1", 2, packet_id=2)
    await asyncio.sleep(ON_THE_WAY_S / 2)
    if dies:
        cluster.cut("replicant-2", "core-1")  # what it has sent comes yet
    assert [answer.reason for answer in await asyncio.gather(*answers)] == [0x97, 0]
    if dies:  # before the owner of the session heard that the first one was refused
        await cluster.hosts["replicant-2"].kill()
    else:
        await asyncio.sleep(2 * ON_THE_WAY_S)
        pub.drop()
    back = await Client.connect(cluster, publisher, at="replicant-1", expiry_s=600)
    assert back.present
    back.link.send(acknowledgement(wire.PUBREL, 2))
    await back._answer(wire.PUBCOMP, 2)
    assert await back.publish("t", b"2", 2) == 0  # packet id 1: its first message was answered with 0x97
    assert await sub.receives(b"2")
