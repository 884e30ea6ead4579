"""One member of a shared subscription gets each message, also where a node stands still, is taken for dead, and goes on
with what had come to it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import pytest

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

SHARED: Final = "$share/g/t"
MESSAGES: Final = 12
MOMENT_S: Final = 0.5
PURGED_S: Final = 6.0
"""By then the cluster goes on without a node that stands still."""


def publish(publisher: Client, qos: int) -> list[asyncio.Task[int]]:
    return [asyncio.create_task(publisher.publish("t", b"%d" % number, qos)) for number in range(MESSAGES)]


def check_came_once(*members: Client) -> None:
    came = Counter(payload for member in members for payload in member.payloads())
    assert came == {b"%d" % number: 1 for number in range(MESSAGES)}


@pytest.mark.parametrize("qos", [1, 2])
@scenario()
async def test_an_owner_that_stood_still_passes_nothing_on(cluster: SimulatedCluster, qos: int) -> None:
    """Its member left while it stood still, which the next owner hears after it was given what was dealt out to it."""
    leaves = await Client.connect(cluster, "leaves", at="replicant-1", expiry_s=600)
    owner = cluster.owner_of("leaves")
    name = next(name for name in (f"stays{n}" for n in range(20)) if cluster.owner_of(name) != owner)
    stays = await Client.connect(cluster, name, at="replicant-1", expiry_s=600)
    publisher = await Client.connect(cluster, "pub", at="replicant-2", clean=True)
    for member in (leaves, stays):
        assert await member.subscribe(SHARED, qos) == qos
    await asyncio.sleep(MOMENT_S)
    cluster.nodes[owner].pause()
    left = asyncio.create_task(leaves.unsubscribe(SHARED))
    await asyncio.sleep(0.01)
    published = publish(publisher, qos)
    await asyncio.sleep(PURGED_S)
    cluster.nodes[owner].resume()
    assert set(await asyncio.gather(*published)) == {0}
    await left
    await asyncio.sleep(PURGED_S)
    check_came_once(leaves, stays)


@scenario()
async def test_what_a_session_left_goes_to_others_from_one_owner_only(cluster: SimulatedCluster) -> None:
    """It ends while its owner stands still; its next owner ends it, too."""
    leaves = await Client.connect(cluster, "leaves", at="replicant-1", expiry_s=600)
    leaves.answers = False
    owner = cluster.owner_of("leaves")
    name = next(name for name in (f"stays{n}" for n in range(20)) if cluster.owner_of(name) != owner)
    stays = await Client.connect(cluster, name, at="replicant-1", expiry_s=600)
    publisher = await Client.connect(cluster, "pub", at="replicant-2", clean=True)
    for member in (leaves, stays):
        assert await member.subscribe(SHARED) == 1
    await asyncio.sleep(MOMENT_S)
    assert set(await asyncio.gather(*publish(publisher, 1))) == {0}
    await asyncio.sleep(MOMENT_S)
    assert leaves.got
    cluster.nodes[owner].pause()
    anew = asyncio.create_task(Client.connect(cluster, "leaves", at="replicant-1", clean=True))
    await asyncio.sleep(PURGED_S)
    cluster.nodes[owner].resume()
    await anew
    await asyncio.sleep(PURGED_S)
    check_came_once(stays)


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
@scenario()
async def test_a_node_that_stood_still_hands_out_nothing_that_others_got(
    cluster: SimulatedCluster, qos: int, leaves: bool
) -> None:
    stopped = await Client.connect(cluster, "stopped", at="replicant-2", clean=True)
    goes_on = await Client.connect(cluster, "goes-on", at="replicant-1", expiry_s=600)
    publisher = await Client.connect(cluster, "pub", at="replicant-1", clean=True)
    for member in (stopped, goes_on):
        assert await member.subscribe(SHARED, qos) == qos
    await asyncio.sleep(MOMENT_S)
    assert set(await asyncio.gather(*publish(publisher, qos))) == {0}
    await asyncio.sleep(MOMENT_S)
    for member in (stopped, goes_on):
        assert member.got, "nodes that have something for one another are linked"
        member.got.clear()
    cluster.nodes["replicant-2"].pause()
    if leaves:  # then that node would pass on what comes
        stopped.drop()
    published = publish(publisher, qos)
    await goes_on.until_got(MESSAGES)
    cluster.nodes["replicant-2"].resume()
    assert set(await asyncio.gather(*published)) == {0}
    await asyncio.sleep(PURGED_S)
    check_came_once(stopped, goes_on)


@pytest.mark.parametrize("expiry_s", [0, 600])
@scenario()
async def test_what_a_member_of_a_purged_node_did_not_acknowledge_goes_to_another(
    cluster: SimulatedCluster, expiry_s: int
) -> None:
    stopped = await Client.connect(cluster, "stopped", at="replicant-2", clean=True)
    stopped.answers = False
    goes_on = await Client.connect(cluster, "goes-on", at="replicant-1", clean=True, expiry_s=expiry_s)
    publisher = await Client.connect(cluster, "pub", at="replicant-1", clean=True)
    for member in (stopped, goes_on):
        assert await member.subscribe(SHARED) == 1
    await asyncio.sleep(MOMENT_S)
    assert set(await asyncio.gather(*publish(publisher, 1))) == {0}
    await asyncio.sleep(MOMENT_S)
    assert stopped.got
    cluster.nodes["replicant-2"].pause()
    await asyncio.sleep(PURGED_S)
    cluster.nodes["replicant-2"].resume()
    await asyncio.sleep(PURGED_S)
    check_came_once(goes_on)
