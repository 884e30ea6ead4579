"""A slot's next owner hears who is connected, and what isn't settled."""

from __future__ import annotations

from flockmq import bounds
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import Admission, AttachError
from unit.broker.session_rpc.clients import DURABLE_REQUEST, ID, connected, token_of
from unit.broker.session_rpc.network import Network


async def test_a_new_owner_hears_who_is_connected_and_all_that_is_not_settled(network: Network) -> None:
    former, later, replicant = await network.start("core-0", "core-1", "replicant-0")
    network.move(range(bounds.SLOTS), former)
    token = token_of(await connected(network, replicant))
    replicant.clients.unsettled_pairs[token] = b"\4\0\1"
    network.move([slot_of(ID)], later)
    await network.settle()
    assert later.sessions.resumed == [(ID, replicant.incarnation, token, b"\4\0\1")]
    newer = replicant.clients.connect(ID)
    await network.settle()
    assert replicant.clients.kicked == [(ID, token)]
    assert token_of(newer) > token


async def test_an_owner_that_is_linked_again_hears_it_too(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    token = token_of(await connected(network, replicant))
    replicant.clients.unsettled_pairs[token] = b"\4\0\1"
    network.cut(core, replicant)
    network.mend(core, replicant)
    await network.settle()
    assert core.sessions.resumed == [(ID, replicant.incarnation, token, b"\4\0\1")]


async def test_a_connection_whose_session_ended_meanwhile_is_closed(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    token = token_of(await connected(network, replicant))
    core.sessions.ended = True
    network.cut(core, replicant)
    network.mend(core, replicant)
    await network.settle()
    assert replicant.clients.kicked == [(ID, token)]


async def test_an_attach_moves_with_its_slot(network: Network) -> None:
    former, later, replicant = await network.start("core-0", "core-1", "replicant-0")
    slot = slot_of(ID)
    network.move(range(bounds.SLOTS), former)
    former.sessions.loaded.discard(slot)
    answers = replicant.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    network.move([slot], later)
    await network.settle()
    assert token_of(answers)
    assert former.sessions.opened == []
    assert later.sessions.opened == [(ID, replicant.incarnation, DURABLE_REQUEST)]


async def test_who_is_gone_while_its_slot_moves_is_gone_there_too(network: Network) -> None:
    former, later, replicant = await network.start("core-0", "core-1", "replicant-0")
    network.move(range(bounds.SLOTS), former)
    token = token_of(await connected(network, replicant))
    network.loses.add(messages.DETACH)
    replicant.clients.let_go(ID, with_will=True)
    await network.settle()
    network.loses.clear()
    network.move([slot_of(ID)], later)
    await network.settle()
    assert (ID, token, -1, True) in later.sessions.left


async def test_what_is_said_of_slots_to_a_core_that_is_back_waits_until_its_own_table_says_that_it_has_them(
    network: Network,
) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    token, slot = token_of(await connected(network, replicant)), slot_of(ID)
    network.rename(core, "core-0@2")
    core.rpc.rename(core.incarnation)
    network.tell(replicant, {slot: core.incarnation})  # the core's own table is behind
    await network.settle()
    assert core.sessions.resumed == [], "by sessions of its former incarnation"
    for owner in ("core-1@1", core.incarnation):
        network.tell(core, {slot: owner})
    await network.settle()
    assert core.sessions.resumed == [(ID, replicant.incarnation, token, b"")]


async def test_who_registers_before_its_owner_knows_that_the_slot_went_away_and_is_back_is_known_there(
    network: Network,
) -> None:
    core, meanwhile, replicant = await network.start("core-0", "core-1", "replicant-0")
    network.move(range(bounds.SLOTS), core)
    token = token_of(await connected(network, replicant))
    for node in (meanwhile, replicant, core):
        for owner in (meanwhile, core):
            network.epoch += 1
            network.tell(node, {slot_of(ID): owner.incarnation})
            await network.settle()
    assert core.rpc.server.registry.holder(ID) == (replicant.incarnation, token, None)
    assert core.sessions.resumed[-1] == (ID, replicant.incarnation, token, b"")


async def test_what_waited_for_a_slot_to_be_loaded_says_nothing_when_it_comes_back(network: Network) -> None:
    """The client may use packet ids that it released at the owner in between for other messages by now."""
    core, meanwhile, replicant = await network.start("core-0", "core-1", "replicant-0")
    network.move(range(bounds.SLOTS), core)
    token, slot = token_of(await connected(network, replicant)), slot_of(ID)
    core.sessions.loads_at_once = False
    core.sessions.loaded.discard(slot)
    replicant.clients.unsettled_pairs[token] = b"\6\0\7"
    replicant.rpc.client.slots_moved([slot])
    await network.settle()
    network.move([slot], meanwhile)
    await network.settle()
    replicant.clients.unsettled_pairs.clear()
    network.move([slot], core)
    await network.settle()
    core.sessions.load(slot)
    await network.settle()
    assert {pairs for _, _, _, pairs in core.sessions.resumed} == {b""}


async def test_of_a_slot_that_was_taken_again_every_node_says_what_it_has(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    await connected(network, replicant)
    core.rpc.server.retaken(slot_of(ID))
    await network.settle()
    assert [client_id for client_id, _, _, _ in core.sessions.resumed] == [ID]


async def test_of_a_slot_that_was_taken_again_tokens_are_above_those_of_who_had_it_meanwhile(network: Network) -> None:
    """Otherwise what the client retains would count as older than what its former connection did."""
    core, meanwhile, replicant = await network.start("core-0", "core-1", "replicant-0")
    network.move(range(bounds.SLOTS), core)
    await connected(network, replicant)
    newer: list[Admission | AttachError] = []
    for owner in (meanwhile, core):
        network.epoch += 1
        for node in (meanwhile, replicant):
            network.tell(node, {slot_of(ID): owner.incarnation})
        await network.settle()
        newer = newer or await connected(network, replicant)
    network.tell(core, {})  # by a bootstrap, which doesn't show that the slot was another's
    core.rpc.server.retaken(slot_of(ID))
    await network.settle()
    newest = await connected(network, replicant)
    assert token_of(newest) > token_of(newer)
