"""What fails for one client or one slot holds up no other."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from flockmq import bounds
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.ports import Attach
from unit.broker.session_rpc.clients import DURABLE_REQUEST, ID, token_of
from unit.broker.session_rpc.network import Network, Node


async def test_one_that_can_not_be_helped_holds_up_no_other_of_its_note(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    fail_for(core, "open", b"1", monkeypatch)
    answers = [replicant.clients.connect(b"%d" % number) for number in range(3)]
    await network.settle()
    assert [len(answer) for answer in answers] == [1, 0, 1]


async def test_one_that_can_not_be_opened_holds_up_no_other_that_waited_for_the_slot(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    slot, others = slot_of(ID), clients_of_slot(2)
    core.sessions.loaded.discard(slot)
    answers = [replicant.clients.connect(client_id) for client_id in (ID, *others)]
    await network.settle()
    fail_for(core, "open", ID, monkeypatch)
    core.sessions.load(slot)
    await network.settle()
    assert [len(answer) for answer in answers] == [0, 1, 1]


async def test_one_that_can_not_be_registered_holds_up_no_other_and_no_question(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, later = await network.start("core-0", "core-1")
    network.move(range(bounds.SLOTS), former)
    clients = [ID, *clients_of_slot(2)]
    answers = [later.clients.connect(client_id, DURABLE_REQUEST) for client_id in clients]
    await network.settle()
    later.rpc.client.ask(clients[2], token_of(answers[2]), messages.ReceiveQuestion(1), lambda _: None)
    fail_for(later, "resume", ID, monkeypatch)
    network.move([slot_of(ID)], later)
    await network.settle()
    assert [client_id for client_id, _, _, _ in later.sessions.resumed] == clients[1:]
    assert [client_id for client_id, _, _ in later.sessions.questions] == [clients[2]]


async def test_one_that_registered_early_and_can_not_be_helped_holds_up_no_other(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, later, replicant = await network.start("core-0", "core-1", "replicant-0")
    network.move(range(bounds.SLOTS), former)
    clients = [ID, *clients_of_slot(1)]
    for client_id in clients:
        replicant.clients.connect(client_id, DURABLE_REQUEST)
    await network.settle()
    later.sessions.loads_at_once = False
    network.move([slot_of(ID)], later)
    await network.settle()
    fail_for(later, "resume", ID, monkeypatch)
    later.sessions.load(slot_of(ID))
    assert [client_id for client_id, _, _, _ in later.sessions.resumed] == clients[1:]


def clients_of_slot(count: int) -> list[bytes]:
    """Client ids of the slot of `ID`."""
    ids = (b"%d" % number for number in range(count * 10 * bounds.SLOTS))
    return list(islice((client_id for client_id in ids if slot_of(client_id) == slot_of(ID)), count))


def fail_for(node: Node, method: str, client_id: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    does = getattr(node.sessions, method)

    def fails_once(asked: bytes | Attach, *rest: Any) -> Any:
        if client_id == (asked.client_id if isinstance(asked, Attach) else asked):
            raise RuntimeError(client_id)
        return does(asked, *rest)

    monkeypatch.setattr(node.sessions, method, fails_once)


@pytest.mark.parametrize("fails", ["own", "disown"])
async def test_a_slot_that_cannot_follow_its_move_keeps_no_other_from_it(
    network: Network, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    one, other = await network.start("core-0", "core-1")
    slots = [slot for slot, owner in enumerate(network.owners) if owner == one.incarnation][:3]
    breaks = other if fails == "own" else one
    right = getattr(breaks.sessions, fails)

    def broken(slot: int) -> None:
        if slot == slots[0]:
            raise ValueError("it can't")
        right(slot)

    monkeypatch.setattr(breaks.sessions, fails, broken)
    network.move(slots, other)
    assert set(slots) & one.sessions.loaded == ({slots[0]} if fails == "disown" else set())
    assert set(slots) & other.sessions.loaded == set(slots) - ({slots[0]} if fails == "own" else set())
