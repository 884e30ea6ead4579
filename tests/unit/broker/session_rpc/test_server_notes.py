"""What an owner sends to nodes: packets for sessions, congested slots, and who takes messages at once."""

from __future__ import annotations

from functools import partial

from unit.broker.session_rpc.clients import ID
from unit.broker.session_rpc.network import Network, Node


async def test_deliveries_come_by_the_way_of_their_node(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    core.rpc.server.deliver(core.incarnation, 1, b"here")
    core.rpc.server.deliver(replicant.incarnation, 2, b"there")
    await network.settle()
    assert core.clients.packets == [(core.incarnation, 1, b"here")]
    assert replicant.clients.packets == [(core.incarnation, 2, b"there")]
    network.cut(core, replicant)
    core.rpc.server.deliver(replicant.incarnation, 2, b"lost")
    await network.settle()
    assert core.sessions.cuts == [replicant.incarnation] * 2, "the link, and what found none"


async def test_a_session_without_room_has_its_connection_cut_off(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    core.rpc.server.overflow(replicant.incarnation, ID, 7)
    await network.settle()
    assert replicant.clients.overflown == [(ID, 7)]


async def test_all_nodes_hear_of_a_congested_slot_from_its_owner(network: Network) -> None:
    core, other, replicant = await network.start("core-0", "core-1", "replicant-0")
    heard: list[tuple[Node, int, bool]] = []
    for node in (core, other, replicant):
        node.rpc.client.on_congestion = partial(lambda *one: heard.append(one), node)
    network.move([3], core)
    core.rpc.server.congested(3, True)
    await network.settle()
    assert sorted(heard, key=lambda one: one[0].incarnation) == [
        (core, 3, True),
        (other, 3, True),
        (replicant, 3, True),
    ]
    heard.clear()
    network.cut(core, replicant)
    core.rpc.server.congested(3, False)
    other.rpc.server.congested(3, True)
    await network.settle()
    network.mend(core, replicant)
    await network.settle()
    assert [one[0] for one in heard] == [core, other], "not who isn't linked, nor of somebody else's slot"


async def test_all_nodes_hear_from_its_owner_who_takes_messages_at_once(network: Network) -> None:
    core, other, replicant = await network.start("core-0", "core-1", "replicant-0")
    heard: list[tuple[int, bool, list[bytes]]] = []
    for node in (core, other, replicant):
        node.rpc.client.on_memory_report = lambda *said: heard.append(said)
    network.move([3], core)
    core.rpc.server.report_memory(3, False, [b"a/#"])
    other.rpc.server.report_memory(3, True, [])
    await network.settle()
    assert heard == [(3, False, [b"a/#"])] * 3, "not of somebody else's slot"
