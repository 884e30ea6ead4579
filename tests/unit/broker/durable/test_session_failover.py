"""A durable session whose owner crashed: what its client gets from the next owner."""

from __future__ import annotations

import pytest

from flockmq.bounds import (
    NUMBERS_RESERVED,
)
from flockmq.durable.session_fields import decode_meta
from flockmq.routing.sink import CONGESTED
from flockmq.session.remote_session import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    pair,
)
from unit.broker.durable.session_owner import (
    DUP1,
    DUP2,
    QOS1,
    SessionOwner,
    all_read,
    back,
    elsewhere,
    heard,
    lag,
    messages_on,
    to_proxy,
)


def test_after_a_crash_all_that_may_have_been_sent_comes_again_under_its_packet_id(session_owner: SessionOwner) -> None:
    session = session_owner.opened(window=2)
    session_owner.send(session, "1")
    session_owner.send(session, "2", 2)
    session_owner.send(session, "3", 2)
    session_owner.settle()
    session.reported(pair(PUBREC, 2))
    session_owner.settle()
    session_owner.send(session, "never durable")
    other, session = elsewhere(session_owner)
    assert not session.is_connected()
    back(other, session)
    assert heard(session) == [(0x62, 2, b""), (DUP1, 1, b"1"), (DUP2, 3, b"3")]


def test_crashes_leave_no_more_of_a_client_that_reads_nothing_than_its_queue_and_its_window_hold(
    session_owner: SessionOwner,
) -> None:
    session = session_owner.opened(window=3)
    for crashes in range(4):
        for number in range(1, 9):
            session_owner.send(session, f"{crashes}.{number}")
            session_owner.settle()
            if to_proxy(session).flow == CONGESTED:
                lag(session_owner, session)
        assert len(messages_on(session_owner.disk)) == 8
        assert session.is_congested()
        session_owner, session = elsewhere(session_owner)
        session.resume(session_owner.fresh(window=3))
        to_proxy(session).overflown = lambda: pytest.fail("it is let in, and loses what waited longest")
        session_owner.settle()
        session.send_again()
    assert all_read(session_owner, session) == [b"0.1", b"0.2", b"0.3", b"3.4", b"3.5", b"3.6", b"3.7", b"3.8"]


def test_what_was_received_is_released_before_more_is_sent_where_the_window_is_full(
    session_owner: SessionOwner,
) -> None:
    session = session_owner.opened(window=1)
    session_owner.send(session, "1", 2)
    session_owner.send(session, "2")
    session_owner.settle()
    other, session = elsewhere(session_owner)
    session.resume(other.fresh(window=1))
    session.send_again()
    assert heard(session) == [(DUP2, 1, b"1")]
    session.reported(pair(PUBREC, 1))
    other.settle()
    assert heard(session) == [(0x62, 1, b"")]
    session.send_again()
    assert heard(session) == [(0x62, 1, b"")], "else its client never ends the one exchange that it takes"
    session.reported(pair(PUBCOMP, 1))
    other.settle()
    assert heard(session) == [(DUP1, 2, b"2")]


def test_what_was_put_while_the_client_was_away_was_never_sent(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session_owner.send(session, "sent")
    session_owner.settle()
    session.leave(session_owner.router.away4)
    session_owner.send(session, "waits")
    session_owner.settle()
    other, session = elsewhere(session_owner)
    back(other, session)
    assert heard(session) == [(DUP1, 1, b"sent"), (QOS1, 2, b"waits")]


def test_what_was_put_since_the_client_is_back_may_have_been_sent(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session_owner.send(session, "1")
    session.leave(session_owner.router.away4)
    session_owner.settle()
    back(session_owner, session)
    session_owner.send(session, "2")
    session_owner.settle()
    other, session = elsewhere(session_owner)
    back(other, session)
    assert [first for first, _, _ in heard(session)] == [DUP1, DUP1]


def test_no_packet_id_is_used_for_another_message_soon(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session_owner.send(session, "1")
    session_owner.settle()
    session.reported(pair(PUBACK, 1))
    session_owner.settle()
    other, session = elsewhere(session_owner)
    back(other, session)
    other.send(session, "2")
    other.settle()
    ((_, packet_id, _),) = heard(session)
    assert packet_id == 1 + NUMBERS_RESERVED + 1


def test_sequences_are_put_down_before_they_are_used(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    for _ in range(2):
        session.messages.last = session.meta.sequences
        session_owner.send(session, "x")
        (op, *_) = [op for op in session_owner.disk.waiting if not callable(op)]
        meta = op[1][b"m"]
        assert meta is not None
        assert decode_meta(meta).sequences == session.messages.last + NUMBERS_RESERVED
        session_owner.settle()
