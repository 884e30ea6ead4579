"""Paths that lose what is sent on them: one way, both ways, to some nodes or to all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from flockmq.membership.link import Link
from flockmq.membership.mesh import Address, DialTarget, Mesh, _NoLink, _Target

from .conftest import Node, Nodes, until
from .proxy import Proxy

Proxied = Callable[[Address], Awaitable[Proxy]]
Cut = Callable[[Node, Node], None]


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Cut:
    """Cuts the path between two nodes, until the test heals it: `monkeypatch.undo`."""
    dial = Mesh._dial
    blocked: set[tuple[Mesh, str | int]] = set()

    async def dial_or_not(mesh: Mesh, way: DialTarget, target: _Target) -> Link | _NoLink:
        cut = (mesh, way[-1]) in blocked
        return _NoLink("the test cut it", is_unreachable=True) if cut else await dial(mesh, way, target)

    monkeypatch.setattr(Mesh, "_dial", dial_or_not)

    def cut(one: Node, other: Node) -> None:
        blocked.update({(one.cluster.mesh, other.address[1]), (other.cluster.mesh, one.address[1])})
        for link in one.cluster.mesh.links_of(other.incarnation):
            link.close("the test cut it")

    return cut


@pytest.fixture
async def proxied() -> AsyncIterator[Proxied]:
    """Makes paths that may lose what is sent."""
    proxies: list[Proxy] = []

    async def start(target: Address) -> Proxy:
        proxies.append(Proxy(target))
        await proxies[-1].start()
        return proxies[-1]

    yield start
    for proxy in proxies:
        await proxy.stop()


@pytest.mark.parametrize("way", ["there", "back"])
async def test_a_link_that_is_open_one_way_only_is_closed_by_both_ends(
    nodes: Nodes, proxied: Proxied, way: str
) -> None:
    core = await nodes.start("core-0", "core")
    proxy = await proxied(core.address)
    nodes.seeds = (proxy.address,)
    replicant = await nodes.start("replicant-0", "replicant")
    await nodes.settled()
    (there,), (back,) = (
        replicant.cluster.mesh.links_of(core.incarnation),
        core.cluster.mesh.links_of(replicant.incarnation),
    )
    proxy.loses_there, proxy.loses_back = way == "there", way == "back"
    cut_off, heard = (back, there) if way == "there" else (there, back)
    await until(cut_off.closed.done)
    await until(heard.closed.done)
    assert cut_off.closed.result().startswith("nothing was heard on it")
    assert heard.closed.result().startswith("it acknowledged no heartbeat")
    await until(lambda: bool(replicant.cluster.mesh.links_of(core.incarnation)))  # by the address that its row says


async def comes_back(node: Node) -> None:
    """As `node/rejoin.py` does, without clients."""
    incarnation = await node.cluster.take_new_incarnation()
    await node.rlog.rejoin(incarnation)
    node.rpc.rename(incarnation)
    await node.cluster.join()


@pytest.mark.parametrize("leads", [True, False])
async def test_a_core_that_is_cut_off_from_the_others_yields_and_comes_back(
    nodes: Nodes, cut: Cut, monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    cores = [await nodes.start(f"core-{n}", "core") for n in range(3)]
    await nodes.settled()
    await until(lambda: any(core.cluster.is_leader for core in cores))
    alone = next(core for core in cores if core.cluster.is_leader == leads)
    others = [core for core in cores if core is not alone]
    purged: list[str] = []
    alone.cluster.on_purged = lambda: purged.append(alone.incarnation)
    for other in others:
        cut(alone, other)
    await until(lambda: alone.cluster.fencing.is_fenced)
    await until(lambda: purged == [alone.incarnation])  # it reads of it in Redis, which it reaches
    assert not alone.cluster.is_leader
    assert any(core.cluster.is_leader for core in others)
    for core in others:
        await until(lambda core=core: set(core.cluster.slots.owners) == {other.incarnation for other in others})  # type: ignore[misc]
        assert not core.cluster.fencing.is_fenced
    back = asyncio.ensure_future(comes_back(alone))
    await until(lambda: alone.incarnation != purged[0])
    assert alone.incarnation not in others[0].cluster.nodes_table  # it waits until the path is whole
    monkeypatch.undo()
    await back
    await nodes.settled()
    await until(lambda: not any(core.cluster.fencing.is_fenced for core in cores))


async def test_of_two_cores_that_are_cut_off_from_each_other_the_holder_of_the_lease_goes_on(
    nodes: Nodes, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = [await nodes.start(f"core-{n}", "core") for n in range(2)]
    await nodes.settled()
    await until(lambda: any(core.cluster.is_leader for core in cores))
    (leader,) = (core for core in cores if core.cluster.is_leader)
    (other,) = (core for core in cores if core is not leader)
    purged = asyncio.Event()
    other.cluster.on_purged = purged.set
    cut(leader, other)
    await purged.wait()
    assert leader.cluster.is_leader
    assert set(leader.cluster.nodes_table) == {leader.incarnation}
    monkeypatch.undo()
    await comes_back(other)
    await nodes.settled()


@pytest.mark.parametrize("role", ["core", "replicant"])
async def test_two_nodes_that_cannot_reach_each_other_talk_through_a_core_until_they_can(
    nodes: Nodes, cut: Cut, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    core = await nodes.start("core-0", "core")
    if role == "core":
        await nodes.start("core-1", "core")
    one, other = await nodes.start("one", role), await nodes.start("other", role)
    await nodes.settled()
    cut(one, other)
    peer = one.delivery.nodes.peer(other.incarnation)
    assert peer is not None
    accepted: list[bool] = []
    assert peer.put_acknowledged(5, b"in between;", lambda: accepted.append(True))
    one.flush()
    await until(lambda: b"".join(run[2] for run in other.received) == b"in between;")
    assert all(link.through for link in one.cluster.mesh.links_of(other.incarnation))
    await until(lambda: bool(accepted))
    assert {one.incarnation, other.incarnation} <= set(core.cluster.nodes_table)
    monkeypatch.undo()
    await until(lambda: any(not link.through for link in one.cluster.mesh.links_of(other.incarnation)))
    assert peer.put_acknowledged(5, b"again", lambda: accepted.append(True))
    one.flush()
    await until(lambda: b"".join(run[2] for run in other.received) == b"in between;again")
    await until(lambda: len(one.cluster.mesh.links_of(other.incarnation)) == 1)
    await until(lambda: core.cluster.mesh.tunnels.relayed == 0)
