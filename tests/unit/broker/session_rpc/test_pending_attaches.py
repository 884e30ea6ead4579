"""Who waits for the sessions of a slot."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.session_rpc.pending_attaches import PendingAttach, PendingAttaches
from unit.broker.durable.rooms import ID, REPLICANT, SENDER, SLOT, clients_of_slot, request


def waiting(client_id: bytes, token: int, node: str = REPLICANT) -> PendingAttach:
    return PendingAttach(client_id, node, token, request(), token)


def test_who_waited_for_a_slot_is_taken_in_their_order() -> None:
    unloaded = PendingAttaches()
    first, second, elsewhere = waiting(ID, 1), waiting(clients_of_slot(1)[0], 2), waiting(b"elsewhere", 3)
    assert elsewhere.slot != SLOT
    for one in (first, second, elsewhere):
        assert unloaded.put(one)
    assert unloaded.take(SLOT) == [first, second]
    assert unloaded.take(SLOT) == []
    assert (len(unloaded), unloaded.waiting_bytes) == (1, elsewhere.size())


def test_who_is_gone_waits_no_more() -> None:
    unloaded = PendingAttaches()
    stays = waiting(b"stays", 3)
    for one in (waiting(ID, 1), waiting(ID, 2, SENDER), stays):
        unloaded.put(one)
    unloaded.end(SLOT, 1)
    unloaded.end(SLOT, 1)
    unloaded.node_gone(SENDER)
    assert unloaded.take(SLOT) == []
    assert (len(unloaded), unloaded.waiting_bytes) == (1, stays.size())


@pytest.mark.parametrize("bound", ["ATTACHES_MAX", "ATTACHES_MAX_BYTES"])
def test_they_are_bounded(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(bounds, bound, 1)
    unloaded = PendingAttaches()
    assert unloaded.put(waiting(ID, 1))
    assert not unloaded.put(waiting(ID, 2))
    unloaded.take(SLOT)
    assert unloaded.put(waiting(ID, 2))
