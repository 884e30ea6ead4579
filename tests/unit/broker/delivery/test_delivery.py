"""For whom a node waits before it leaves."""

from __future__ import annotations

import asyncio

import pytest

from flockmq import bounds
from flockmq.delivery.delivery import Delivery
from flockmq.membership.cluster import Cluster
from flockmq.mqtt.message import publication
from flockmq.rlog.schema import NodeInfo
from flockmq.routing.targets import SlotSet

OTHER = "b@00000000000000010000"


async def waited(delivery: Delivery) -> bool:
    """Whether it waits at all."""
    waiting = asyncio.ensure_future(delivery.until_accepted())
    await asyncio.sleep(0)
    waits = not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return waits


async def test_nobody_is_waited_for_who_accepted_all(cluster: Cluster) -> None:
    assert not await waited(Delivery([], cluster))


async def test_the_owner_of_a_slot_is_waited_for_until_the_time_is_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = Delivery([], cluster)
    message = publication(4, 1, False, b"t", b"", b"")
    assert delivery.slots.sender.put_acknowledged(SlotSet([3]), message, lambda: None) == 1
    assert await waited(delivery)
    monkeypatch.setattr(bounds, "FORWARDED_MAX_S", 0.0)
    assert not await waited(delivery)


async def test_a_node_is_waited_for_unless_it_has_left(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = Delivery([], cluster)
    cluster.nodes_table[OTHER] = NodeInfo("b", "replicant", "", 0, 0, "1")
    peer = delivery.nodes.peer(OTHER)
    assert peer is not None
    assert peer.put_acknowledged(4, b"message", lambda: None)
    assert await waited(delivery)
    monkeypatch.setattr(cluster, "has_left", lambda incarnation: incarnation == OTHER)
    assert not await waited(delivery)
    delivery.stop()
