"""A node that stops, and what it acknowledged before: two links to the same node, each read to its own end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from flockmq import bounds
from flockmq.delivery.delivery import Delivery
from flockmq.membership.cluster import Cluster
from flockmq.membership.link import Link
from flockmq.membership.link_keys import LinkKeys
from flockmq.membership.membership_settings import MembershipSettings
from flockmq.membership.mesh import _Target
from flockmq.rlog.schema import NodeInfo

from .conftest import KEY, until


class Node:
    """No more than its links, and the messages on them."""

    def __init__(self, name: str) -> None:
        self.cluster = Cluster(
            MembershipSettings(name, "core", "127.0.0.1", 0, "0", LinkKeys(KEY), ("127.0.0.1", 0), ())
        )
        self.delivery = Delivery([], self.cluster)

    async def stop(self) -> None:
        await self.cluster.stop()
        self.delivery.stop()


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Node, Node]]:
    """No Redis; two links from the first to the second, as when both dial at the same time."""
    one, other = Node("one"), Node("other")
    try:
        for node in (one, other):
            await node.cluster.start()
        for _ in range(2):
            link = await one.cluster.mesh._dial(("127.0.0.1", other.cluster.link_port), _Target())
            assert isinstance(link, Link), link
        await until(lambda: len(other.cluster.mesh.links_of(one.cluster.incarnation)) == 2)
        await until(lambda: all(link.resumed for link in one.cluster.mesh.links()))
        yield one, other
    finally:
        for node in (one, other):
            await node.stop()


def far_end(link: Link, other: Node) -> Link:
    assert link._transport is not None
    host, port = link._transport.get_extra_info("sockname")[:2]
    return next(far for far in other.cluster.mesh.links() if far.address == f"{host}:{port}")


async def test_what_was_sent_on_one_link_arrives_though_the_goodbye_on_the_other_is_read_first(
    pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LINK_LEAVE_MAX_S", 60.0)
    one, other = pair
    received: list[bytes] = []
    other.delivery.nodes.on_received = lambda who, version, chunk: received.append(chunk)
    one.cluster.nodes_table[other.cluster.incarnation] = NodeInfo("other", "replicant", "", 0, 0, "1")
    peer = one.delivery.nodes.peer(other.cluster.incarnation)
    assert peer is not None
    assert isinstance(peer.link, Link)
    transport = far_end(peer.link, other)._transport
    assert transport is not None
    transport.pause_reading()
    chunk = bytes(100_000)
    for n in range(50):
        assert peer.put_acknowledged(5, b"%06d" % n + chunk, lambda: None)
        peer.flush()
    leaving = asyncio.ensure_future(one.stop())
    await until(lambda: len(other.cluster.mesh.links_of(one.cluster.incarnation)) < 2)
    assert len(one.cluster.mesh.links_of(other.cluster.incarnation)) == 1
    transport.resume_reading()
    await leaving
    assert b"".join(received).replace(chunk, b";") == b"".join(b"%06d;" % n for n in range(50))
