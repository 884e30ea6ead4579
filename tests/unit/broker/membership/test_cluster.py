"""A node's place in the cluster: what it keeps of those who come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast
from unittest.mock import MagicMock, call

import pytest

from flockmq import bounds
from flockmq.membership.cluster import Cluster
from flockmq.membership.handshake import Identity
from flockmq.membership.link import Link
from flockmq.membership.reachability import new_incarnation
from flockmq.rlog.schema import NodeInfo
from unit.broker.membership.lone_cluster import lone_cluster


@pytest.fixture
async def cluster() -> Cluster:
    return lone_cluster()


def links_to(incarnation: str, *ways: str, role: str = "core") -> list[Link]:
    """One for each core to go through; "": without one. Until it is closed it is open."""
    links = []
    for through in ways:
        peer = Identity(incarnation, role)
        link = MagicMock(peer=peer, through=through, resumed=False, is_open=True, control_bytes=0)
        link.close.side_effect = partial(_close, link)
        links.append(cast(Link, link))
    return links


def _close(link: MagicMock, reason: str) -> None:
    link.is_open = False


def closed(link: Link) -> MagicMock:
    return cast(MagicMock, link.close)


def come_and_go(cluster: Cluster, incarnation: str) -> None:
    link = cast(Link, MagicMock(peer=Identity(incarnation, "replicant"), through="", resumed=False))
    cluster.link_up(link)
    cluster.link_goodbye(link)
    cluster.link_down(link, "it leaves the cluster")


async def test_nothing_is_kept_of_a_node_that_comes_and_goes_and_is_no_member(cluster: Cluster) -> None:
    member, non_member = new_incarnation("b"), new_incarnation("c")
    cluster.nodes_table[member] = NodeInfo("b", "replicant", "", 0, 0, "1")
    for incarnation in (member, non_member):
        come_and_go(cluster, incarnation)
    assert cluster._members._unlinked_at.keys() == {member}
    assert cluster._members.is_gone(member)
    assert not cluster._members.is_gone(non_member)
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


async def test_a_link_stays_when_ways_from_both_sides_that_it_replaces_end(cluster: Cluster) -> None:
    new = new_incarnation("b")
    mine, theirs, link = links_to(new, "core-1@0", "core-2@0", "")
    linked: list[str] = []
    cluster.on_core_linked.append(linked.append)
    for one in (mine, theirs, link):
        cluster.link_up(one)
    for tunnel in (mine, theirs):
        cluster.link_down(tunnel, "there is a link without a core in between")
    closed(link).assert_not_called()
    assert linked == [new] * 5


async def test_when_one_of_two_ways_through_cores_ends_both_ends_begin_again(cluster: Cluster) -> None:
    one, other = links_to(new_incarnation("b"), "core-1@0", "core-2@0")
    cluster.link_up(one)
    cluster.link_up(other)
    cluster.link_down(one, "the link between core-1 and b was lost")
    closed(other).assert_called_once_with("another link to the same node ended")


async def test_a_link_that_ends_takes_a_way_through_a_core_along_that_is_closed_already(cluster: Cluster) -> None:
    new = new_incarnation("b")
    tunnel, link, again = links_to(new, "core-1@0", "", "")
    cluster.link_up(tunnel)
    cluster.link_up(link)
    cluster.link_down(link, "the peer closed it")
    assert not tunnel.is_open
    cluster.link_up(again)
    cluster.link_down(tunnel, "there is a link without a core in between")
    closed(again).assert_not_called()


async def test_what_is_told_takes_the_link_that_is_open(cluster: Cluster) -> None:
    new = new_incarnation("b")
    tunnel, link, other = links_to(new, "core-1@0", "", "")
    cluster.link_up(tunnel)
    assert cluster.notify(new, "method", b"on the only way")
    cluster.link_up(link)
    assert cluster.notify(new, "method", b"on the short way")  # the tunnel is closed, and its end not seen yet
    cluster.link_up(other)
    link.close("nothing was heard on it for 3.0 s")
    assert cluster.notify(new, "method", b"on the other link")
    notes = [cast(MagicMock, one.note).call_args_list for one in (tunnel, link, other)]
    ways = (b"on the only way", b"on the short way", b"on the other link")
    assert notes == [[call("method", way)] for way in ways]


@pytest.mark.parametrize("is_member", [True, False], ids=["member", "purged itself"])
async def test_when_a_node_takes_leave_on_one_link_the_other_is_read_to_its_own_end(
    cluster: Cluster, is_member: bool
) -> None:
    new = new_incarnation("b")
    if is_member:
        cluster.nodes_table[new] = NodeInfo("b", "replicant", "", 0, 0, "1")
    first, second, third = links_to(new, "", "", "", role="replicant")
    for link in (first, second, third):
        cluster.link_up(link)
    cluster.link_goodbye(first)
    cluster.link_down(first, "it leaves the cluster")
    cluster.link_down(second, "Connection reset by peer")
    closed(third).assert_not_called()
    assert cluster.has_left(new)
    cluster.link_down(third, "it leaves the cluster")
    assert cluster.has_left(new) == is_member


async def test_a_node_that_stops_drains_all_its_links_those_through_cores_first(cluster: Cluster) -> None:
    def leave(link: Link) -> Callable[[], None]:
        def ended() -> None:
            left.append(link.through)
            link.closed.set_result("the peer closed it")
            cluster.link_down(link, "the peer closed it")

        return ended

    left: list[str] = []
    links = [*links_to(new_incarnation("b"), "", ""), *links_to(new_incarnation("c"), "core-1@0")]
    for link in links:
        link.closed = asyncio.get_running_loop().create_future()
        cast(MagicMock, link.leave).side_effect = leave(link)
        cluster.link_up(link)
    await cluster.mesh.stop()
    assert left == ["core-1@0", "", ""]
    reasons = {one.args[0] for link in links for one in closed(link).call_args_list}
    assert reasons <= {"this node leaves"}


async def test_a_link_is_idle_where_no_other_to_that_node_is_used() -> None:
    cluster, now = lone_cluster("replicant"), 1000.0
    unused, used = links_to(new_incarnation("b"), "", "", role="replicant")
    for link, used_at in ((unused, 0.0), (used, now - bounds.PEER_IDLE_S / 2)):
        link.heard_at, link.answered_at, link.up_at, link.used_at = now, now, 0.0, used_at
        cluster.link_up(link)
    cluster.heartbeats._send_heartbeats(now, stood_still=False)
    assert (unused.is_open, used.is_open) == (True, True)
    used.used_at = 0.0
    cluster.heartbeats._send_heartbeats(now, stood_still=False)
    for link in (unused, used):
        closed(link).assert_called_once_with("it was idle")
