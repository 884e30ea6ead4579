"""The wills that CONNECTs cancelled: known for a while, within a bound."""

from __future__ import annotations

import pytest

from flockmq.bounds import CANCELLED_WILLS_KEPT_S
from flockmq.durable.cancelled_wills import CancelledWills
from flockmq.mqtt.message import Will
from flockmq.session_rpc.clean_session_wills import PendingWill
from unit.broker.durable.test_due_wills import will

WILL = PendingWill(b"c", None, Will(will().message, 0))
SIZE = len(WILL.will.message.packet)


def noted(*clients: bytes) -> CancelledWills:
    wills = CancelledWills()
    for client_id in clients:
        wills.note(client_id, b"first", WILL, 30.0, 0.0)
    return wills


def test_it_is_known_by_the_CONNECT_that_cancelled_it_once() -> None:
    wills = noted(b"c")
    assert wills.take(b"c", b"another") is None
    taken = wills.take(b"c", b"first")
    assert taken is not None
    assert (taken.left, taken.due_s, wills.take(b"c", b"first"), wills.size_bytes) == (WILL, 30.0, None, 0)


def test_the_next_CONNECT_decides() -> None:
    wills = noted(b"c")
    wills.asked_again(b"c", b"second", 1.0)
    wills.asked_again(b"other", b"second", 1.0)
    assert wills.take(b"c", b"first") is None
    taken = wills.take(b"c", b"second")
    assert taken is not None
    assert (taken.left, taken.due_s, len(wills), wills.size_bytes) == (WILL, 30.0, 0, 0)


def test_who_was_back_has_none() -> None:
    wills = noted(b"c")
    wills.forget(b"c")
    wills.forget(b"c")
    wills.asked_again(b"c", b"second", 1.0)
    assert (len(wills), wills.size_bytes) == (0, 0)


def test_who_is_connected_for_a_minute_is_back() -> None:
    wills = noted(b"1")
    wills.note(b"2", b"first", WILL, 30.0, 1.0)
    wills.tick(CANCELLED_WILLS_KEPT_S)
    assert (wills.take(b"1", b"first"), wills.take(b"2", b"first") is not None) == (None, True)


def test_beyond_the_bound_the_oldest_stays_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.durable.cancelled_wills.CANCELLED_WILLS_MAX_BYTES", 2 * SIZE)
    wills = noted(b"1", b"2", b"3", b"3")
    assert (wills.take(b"1", b"first"), len(wills), wills.size_bytes) == (None, 2, 2 * SIZE)
