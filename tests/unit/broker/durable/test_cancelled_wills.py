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


def test_it_is_known_by_the_CONNECT_that_cancelled_it_once() -> None:
    wills = CancelledWills()
    wills.note(b"1", WILL, 30.0, 0.0)
    taken = wills.take(b"1")
    assert taken is not None
    assert (taken.left, taken.due_s, wills.take(b"1"), wills.size_bytes) == (WILL, 30.0, None, 0)


def test_who_is_connected_for_a_minute_is_back() -> None:
    wills = CancelledWills()
    for number in (1, 2):
        wills.note(b"%d" % number, WILL, 30.0, float(number))
    wills.tick(1.0 + CANCELLED_WILLS_KEPT_S)
    assert (wills.take(b"1"), wills.take(b"2") is not None) == (None, True)


def test_beyond_the_bound_the_oldest_stays_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.durable.cancelled_wills.CANCELLED_WILLS_MAX_BYTES", 2 * SIZE)
    wills = CancelledWills()
    for nonce in (b"1", b"2", b"3", b"3"):
        wills.note(nonce, WILL, 30.0, 0.0)
    assert (wills.take(b"1"), len(wills), wills.size_bytes) == (None, 2, 2 * SIZE)
