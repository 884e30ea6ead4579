"""What a node knows of the load of its clients."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from flockmq.bounds import CLIENT_TRAFFIC_AVERAGED_S, CLIENT_TRAFFIC_LOOK_S, CLIENT_TRAFFIC_SLICE
from flockmq.node.client_traffic import ClientTraffic
from flockmq.node.node_load import Figures
from flockmq.protocol.channel import CONNECTED, Channel


class Session:
    def __init__(self, *, durable: bool) -> None:
        self._is_durable = durable

    def is_remote(self) -> bool:
        return self._is_durable


class Connected:
    """As much of a Channel as is looked at."""

    def __init__(self, client_id: bytes, *, durable: bool = False, connected_s: float = 0.0) -> None:
        self.state, self.connected_s = CONNECTED, connected_s
        self.messages_in = self.messages_out = 0
        self.session = Session(durable=durable)
        self._client_id = client_id

    def client_id(self) -> bytes:
        return self._client_id


class Node:
    def __init__(self, *clients: Connected) -> None:
        self.now_s = 0.0
        self.clients = {client.client_id(): cast(Channel, client) for client in clients}
        self.traffic = ClientTraffic(self.clients, lambda: self.now_s)

    async def look(self, after_s: float = CLIENT_TRAFFIC_LOOK_S) -> Figures:
        self.now_s += after_s
        await self.traffic.look()
        return self.traffic.figures()


async def test_messages_in_and_out_are_counted_by_client_and_averaged() -> None:
    busy, quiet = Connected(b"busy", durable=True), Connected(b"quiet")
    node = Node(busy, quiet)
    assert await node.look() == Figures(2, 1, 0.0)
    for _ in range(round(10 * CLIENT_TRAFFIC_AVERAGED_S / CLIENT_TRAFFIC_LOOK_S)):
        busy.messages_in += 300
        busy.messages_out += 100
        figures = await node.look()
    assert (figures.connections, figures.sessions) == (2, 1)
    assert figures.messages_per_s == pytest.approx(40.0, abs=0.1)
    assert node.traffic.figures_of(cast(Channel, quiet)) == Figures(1, 0, 0.0)
    busy.messages_in += 4000
    assert (await node.look()).messages_per_s < 200, "one burst is no load"


async def test_a_connection_in_the_place_of_another_one_begins_anew() -> None:
    node = Node(Connected(b"a"))
    node.clients[b"a"].messages_in = 1000
    await node.look()
    other = Connected(b"a")
    other.messages_in = 50
    node.clients[b"a"] = cast(Channel, other)
    assert await node.look() == Figures(1, 0, 5.0)


async def test_who_is_sent_away_counts_no_more() -> None:
    busy = Connected(b"busy", durable=True)
    node = Node(busy, Connected(b"quiet"))
    await node.look()
    busy.messages_in = 1000
    assert (await node.look()).messages_per_s > 0
    node.traffic.gone(cast(Channel, busy))
    node.traffic.gone(cast(Channel, busy))
    del node.clients[b"busy"]
    assert node.traffic.figures() == Figures(1, 0, 0.0)
    assert not node.traffic.is_here(cast(Channel, busy))


async def test_those_that_leave_while_many_are_counted_are_left_out() -> None:
    node = Node(*(Connected(b"%d" % number, durable=True) for number in range(3 * CLIENT_TRAFFIC_SLICE)))
    assert (await node.look()).sessions == 3 * CLIENT_TRAFFIC_SLICE
    looking = asyncio.ensure_future(node.traffic.look())
    await asyncio.sleep(0)
    assert not looking.done()
    for number in range(2 * CLIENT_TRAFFIC_SLICE, 3 * CLIENT_TRAFFIC_SLICE):
        del node.clients[b"%d" % number]
    await looking
    assert node.traffic.figures() == Figures(2 * CLIENT_TRAFFIC_SLICE, 2 * CLIENT_TRAFFIC_SLICE, 0.0)


async def test_the_oldest_come_first() -> None:
    node = Node(Connected(b"old"), Connected(b"new", connected_s=7.0))
    node.now_s = 9.0
    (oldest,) = node.traffic.oldest(1)
    assert (oldest.client_id(), node.traffic.age_s(oldest)) == (b"old", 9.0)
    assert node.traffic.is_here(oldest)
