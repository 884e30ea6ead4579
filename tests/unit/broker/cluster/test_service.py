"""A node's place in the cluster: what it keeps of those who come and go."""

from __future__ import annotations

import asyncio
from typing import cast
from unittest.mock import MagicMock

import pytest

from flockmq import bounds
from flockmq.cluster.handshake import Identity
from flockmq.cluster.link import Link
from flockmq.cluster.membership import new_incarnation
from flockmq.cluster.service import Cluster
from flockmq.cluster.views import ClusterSettings
from flockmq.rlog.shards import NodeInfo


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster(ClusterSettings(name="a", role="core", host="", mqtt_port=0, version="1", key=bytes(32)), [])


def come_and_go(cluster: Cluster, incarnation: str) -> None:
    link = cast(Link, MagicMock(peer=Identity(incarnation, "replicant"), through="", resumed=False))
    cluster.link_up(link)
    cluster.link_goodbye(link)
    cluster.link_down(link, "it leaves the cluster")


async def test_nothing_is_kept_of_a_node_that_comes_and_goes_and_is_no_member(cluster: Cluster) -> None:
    member, stranger = new_incarnation("b"), new_incarnation("c")
    cluster.nodes_table[member] = NodeInfo("b", "replicant", "", 0, 0, "1")
    for incarnation in (member, stranger):
        come_and_go(cluster, incarnation)
    assert cluster._members._unlinked_at.keys() == {member}
    assert cluster._members.is_gone(member)
    assert not cluster._members.is_gone(stranger)
    cluster.nodes_table.delete(member, cluster.nodes_table[member])
    assert not cluster._members._unlinked_at


async def test_when_a_link_to_a_node_ends_there_is_another_with_which_both_ends_begin_again(cluster: Cluster) -> None:
    """The other end may have seen it before, and have said all again on a link that this end undoes."""
    first, second = (
        cast(Link, MagicMock(peer=Identity(new, "replicant"), through="", resumed=False))
        for new in [new_incarnation("b")] * 2
    )
    undone: list[str] = []
    cluster.on_link_lost.append(undone.append)
    cluster.link_up(first)
    cluster.link_up(second)
    cluster.link_down(first, "nothing was heard on it for 3.0 s")
    assert undone == [second.peer.incarnation]
    cast(MagicMock, second.close).assert_called_once_with("another link to the same node ended")


async def test_a_link_stays_when_the_way_through_a_core_that_it_replaces_ends(cluster: Cluster) -> None:
    new = new_incarnation("b")
    tunnel, link = (
        cast(Link, MagicMock(peer=Identity(new, "core"), through=through, resumed=False))
        for through in ("core-1@0", "")
    )
    linked: list[str] = []
    cluster.on_core_linked.append(linked.append)
    cluster.link_up(tunnel)
    cluster.link_up(link)
    cluster.link_down(tunnel, "there is a link without a core in between")
    cast(MagicMock, link.close).assert_not_called()
    assert linked == [new] * 3, "what was said on the way that ended may be lost"


async def test_a_node_that_was_purged_lets_publishers_wait_until_it_is_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "FORWARD_WAIT_S", 0.01)
    monkeypatch.setattr(cluster._beats, "settled", lambda now: True)
    other = new_incarnation("b")
    cluster.nodes_table[other] = NodeInfo("b", "replicant", "", 0, 0, "1")
    peer = cluster.peer(other)
    assert peer is not None
    waited, told = asyncio.Event(), asyncio.Event()
    cluster._joined = False  # as it is from the purge until it is a member again
    assert peer.put_acknowledged(5, b"message", told.set)
    peer.flush()
    asyncio.get_running_loop().call_later(3 * bounds.FORWARD_WAIT_S, waited.set)
    await waited.wait()
    assert not told.is_set()
    cluster._joined = True
    await asyncio.wait_for(told.wait(), 10)
    peer.purge()
