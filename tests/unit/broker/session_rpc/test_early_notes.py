"""What is said of a slot before its owner can hear it: it waits, or is asked for again."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from unit.broker.session_rpc.clients import DURABLE_REQUEST, ID, connected, token_of
from unit.broker.session_rpc.network import Network, Node


async def test_who_registers_before_the_sessions_are_there_waits(network: Network) -> None:
    former, later, replicant = await network.start("core-0", "core-1", "replicant-0")
    slot = slot_of(ID)
    network.move(range(bounds.SLOTS), former)
    token = token_of(await connected(network, replicant))
    later.sessions.loads_at_once = False
    network.move([slot], later)
    await network.settle()
    assert later.sessions.resumed == []
    later.sessions.load((slot + 1) % bounds.SLOTS)
    assert later.sessions.resumed == []
    later.sessions.load(slot)
    assert later.sessions.resumed == [(ID, replicant.incarnation, token, b"")]


async def test_who_registers_and_goes_before_the_sessions_are_there_is_gone(network: Network) -> None:
    former, later, replicant = await network.start("core-0", "core-1", "replicant-0")
    slot = slot_of(ID)
    network.move(range(bounds.SLOTS), former)
    token = token_of(await connected(network, replicant))
    later.sessions.loads_at_once = False
    network.move([slot], later)
    await network.settle()
    replicant.clients.let_go(ID)
    await network.settle()
    later.sessions.load(slot)
    assert later.sessions.resumed == [(ID, replicant.incarnation, token, b"")]
    assert later.sessions.left[-1] == (ID, token, -1, False)
    assert len(later.rpc.server.registry) == 0


async def test_a_node_that_registers_and_is_purged_before_the_sessions_are_there_holds_nothing(
    network: Network,
) -> None:
    former, later, replicant = await network.start("core-0", "core-1", "replicant-0")
    slot = slot_of(ID)
    network.move(range(bounds.SLOTS), former)
    await connected(network, replicant)
    later.sessions.loads_at_once = False
    network.move([slot], later)
    await network.settle()
    await network.lose_node(replicant)
    later.sessions.load(slot)
    assert later.sessions.resumed == []
    assert len(later.rpc.server.registry) == 0


async def test_what_finds_no_room_before_the_sessions_are_there_is_asked_for_again(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, later, replicant = await network.start("core-0", "core-1", "replicant-0")
    slot = slot_of(ID)
    network.move(range(bounds.SLOTS), former)
    other = next(client_id for client_id in (b"%d" % n for n in range(99_999)) if slot_of(client_id) == slot)
    kept = replicant.clients.connect(other, DURABLE_REQUEST)
    gone = replicant.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    later.sessions.loads_at_once = False
    monkeypatch.setattr(bounds, "REGISTERS_EARLY_MAX", 0)
    network.move([slot], later)
    await network.settle()
    replicant.clients.let_go(ID, 7, with_will=True)
    await network.settle()
    assert dict(later.rpc.dropped())["unloaded"] == 3
    later.sessions.left.clear()
    later.sessions.load(slot)
    await network.settle()
    assert later.sessions.resumed == [(other, replicant.incarnation, token_of(kept), b"")]
    assert later.sessions.left == [(ID, token_of(gone), 7, True)]


async def test_a_node_that_was_purged_and_is_linked_yet_has_no_clients_here(network: Network) -> None:
    core, replicant, other = await network.start("core-0", "replicant-0", "replicant-1")
    await connected(network, replicant)
    core.sessions.loaded.discard(slot_of(b"1"))
    waits = replicant.clients.connect(b"1")
    await network.settle()
    network.purge(replicant)
    answers = replicant.clients.connect(b"2", DURABLE_REQUEST)
    replicant.rpc.rename(replicant.incarnation)  # registers all
    await network.settle()
    core.sessions.load(slot_of(b"1"))
    await network.settle()
    assert waits == answers == []
    assert core.sessions.resumed == []
    assert [client_id for client_id, _, _ in core.sessions.opened] == [ID]
    newer = other.clients.connect(ID)
    await network.settle()
    assert token_of(newer)
    assert replicant.clients.kicked == []


async def test_what_a_node_says_before_it_is_known_as_a_member_is_heard_when_it_is(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    token = token_of(await connected(network, replicant))
    network.purge(replicant)
    replicant.rpc.rename(replicant.incarnation)
    answers = replicant.clients.connect(b"1", DURABLE_REQUEST)
    await network.settle()
    assert core.sessions.resumed == []
    network.members.add(replicant.incarnation)
    await network.settle()
    assert core.sessions.resumed == [(ID, replicant.incarnation, token, b"")]
    assert token_of(answers)


async def test_of_two_connections_the_older_goes_before_its_node_is_known_as_a_member(network: Network) -> None:
    """A purged node may take long to be one again, and its owner to hear so."""
    core, replicant, other = await network.start("core-0", "replicant-0", "replicant-1")
    token = token_of(await connected(network, replicant))
    network.cut(core, replicant)
    network.purge(replicant)
    newer = token_of(await connected(network, other))
    network.mend(core, replicant)
    replicant.rpc.rename(replicant.incarnation)  # registers all
    await network.settle()
    assert replicant.clients.kicked == [(ID, token)]
    network.members.add(replicant.incarnation)
    await network.settle()
    assert other.clients.held == {ID: newer}
    assert core.sessions.resumed == []


async def test_what_a_node_says_that_is_no_member_again_is_forgotten_in_time(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    await connected(network, replicant)
    network.purge(replicant)
    early, clock = core.rpc.server._early, [0.0]
    early._now = lambda: clock[0]
    replicant.rpc.rename(replicant.incarnation)  # registers all
    await network.settle()
    assert len(early) == 1
    clock[0] = bounds.EARLY_KEPT_S - 1
    await network.settle()
    clock[0] = bounds.EARLY_KEPT_S + 1
    early.sweep(core.rpc.server._accepts_notes, core.rpc.server.is_linked)
    assert len(early) == 0
    core.sessions.resumed.clear()
    network.members.add(replicant.incarnation)
    await network.settle()
    assert [client_id for client_id, _, _, _ in core.sessions.resumed] == [ID], "now that it is one, it is asked"
    await network.settle()
    assert len(core.sessions.resumed) == 1, "once"


async def test_what_a_node_said_before_it_was_heard_comes_before_what_it_says_since(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    token = token_of(await connected(network, replicant))
    network.purge(replicant)
    for pairs in (b"before", b"since"):
        core.rpc.server._take_register(replicant.incarnation, (ID, messages.pack_token(token), DURABLE_REQUEST, pairs))
        network.members.add(replicant.incarnation)
    await network.settle()
    assert [pairs for _, _, _, pairs in core.sessions.resumed] == [b"before", b"since"]


async def test_what_was_said_of_a_slot_long_before_its_row_came_is_asked_for_again(network: Network) -> None:
    """The core was cut off from Redis, so it didn't see its own slots."""
    core, replicant = await network.start("core-0", "replicant-0")
    await connected(network, replicant)
    slot, early, clock = slot_of(ID), core.rpc.server._early, [0.0]
    network.tell(core, {slot: "core-1@1"})
    early._now = lambda: clock[0]
    replicant.rpc.rename(replicant.incarnation)  # registers all
    await network.settle()
    clock[0] = bounds.EARLY_KEPT_S + 1
    early.sweep(core.rpc.server._accepts_notes, core.rpc.server.is_linked)
    assert (len(early), core.sessions.resumed) == (0, [])
    network.tell(core, {slot: core.incarnation})
    await network.settle()
    assert [client_id for client_id, _, _, _ in core.sessions.resumed] == [ID]


async def registered_in_vain(network: Network, monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """A core, and a node with a client that was purged and tells of it again, for which there is no room."""
    core, replicant = await network.start("core-0", "replicant-0")
    await connected(network, replicant)
    network.purge(replicant)
    monkeypatch.setattr(bounds, "REGISTERS_EARLY_MAX", 0)
    replicant.rpc.rename(replicant.incarnation)  # registers all
    await network.settle()
    return [core, replicant]


async def test_who_finds_no_room_at_slots_that_are_there_is_asked_when_it_is_a_member(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, replicant = await registered_in_vain(network, monkeypatch)
    assert core.sessions.resumed == []
    network.members.add(replicant.incarnation)
    await network.settle()
    assert [client_id for client_id, _, _, _ in core.sessions.resumed] == [ID]


async def test_who_is_missed_and_loses_its_link_is_not_asked(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says all again by itself."""
    core, replicant = await registered_in_vain(network, monkeypatch)
    assert core.rpc.server._early.missed_slots() == [slot_of(ID)]
    network.cut(core, replicant)
    assert core.rpc.server._early.missed_slots() == []


async def test_who_leaves_before_its_node_is_a_member_is_not_there_when_it_is(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    token = token_of(await connected(network, replicant))
    network.purge(replicant)
    replicant.rpc.rename(replicant.incarnation)  # registers all
    await network.settle()
    replicant.clients.let_go(ID, 0)
    await network.settle()
    core.sessions.left.clear()
    network.members.add(replicant.incarnation)
    await network.settle()
    assert [client_id for client_id, _, _, _ in core.sessions.resumed] == [ID]
    assert core.sessions.left == [(ID, token, 0, False)], "behind it"


async def test_who_left_before_a_slot_is_loaded_left_before_its_client_is_back(network: Network) -> None:
    former, later, replicant = await network.start("core-0", "core-1", "replicant-0")
    network.move(range(bounds.SLOTS), former)
    token = token_of(await connected(network, replicant))
    later.sessions.loads_at_once = False
    network.move([slot_of(ID)], later)
    await network.settle()
    replicant.clients.let_go(ID, 0)
    answers = replicant.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    later.sessions.left.clear()
    opened: list[bool] = []
    later.sessions.on_open = lambda: opened.append((ID, token, 0, False) in later.sessions.left)
    later.sessions.load(slot_of(ID))
    await network.settle()
    assert token_of(answers)
    assert opened == [True]


async def test_a_node_that_missed_something_is_asked_again_though_packets_to_it_found_no_room(network: Network) -> None:
    """Its link is up, so it registers nothing by itself."""
    core, replicant = await network.start("core-0", "replicant-0")
    await connected(network, replicant)
    core.rpc.server.retaken(slot_of(ID))
    core.rpc.notes.on_deliveries_failed(replicant.incarnation)
    await network.settle()
    assert [client_id for client_id, _, _, _ in core.sessions.resumed] == [ID]
