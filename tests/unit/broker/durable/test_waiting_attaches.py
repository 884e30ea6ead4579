"""Who waits for what its former connection's node says."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.durable.waiting_attaches import WaitingAttaches
from flockmq.session_rpc.ports import Attach
from unit.broker.durable.rooms import REPLICANT, SENDER, request


def attach(client_id: bytes, token: int, node: str = REPLICANT) -> Attach:
    return Attach(client_id, node, token, request(), lambda _: None)


def test_of_a_client_id_the_newest_waits() -> None:
    returning = WaitingAttaches()
    older, newer = attach(b"a", 1), attach(b"a", 2)
    assert returning.put(older)
    assert returning.put(newer)
    assert len(returning) == 1
    returning.left(b"a", 1)
    assert returning.take(b"a") is newer
    assert returning.take(b"a") is None
    assert returning.waiting_bytes == 0


def test_who_is_gone_waits_no_more() -> None:
    returning = WaitingAttaches()
    returning.put(attach(b"a", 1))
    returning.put(attach(b"b", 2, SENDER))
    returning.left(b"a", 1)
    returning.node_gone(SENDER)
    assert (len(returning), returning.waiting_bytes) == (0, 0)


@pytest.mark.parametrize("bound", ["RETURNING_MAX", "RETURNING_MAX_BYTES"])
def test_they_are_bounded(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    returning = WaitingAttaches()
    monkeypatch.setattr(bounds, bound, 0)
    assert not returning.put(attach(b"a", 1))
