"""A durable session whose owner crashed: what its client gets from the next owner."""

from __future__ import annotations

import pytest

from flockmq.bounds import (
    NUMBERS_RESERVED,
)
from flockmq.durable.session_fields import decode_meta
from flockmq.routing.sink import CONGESTED
from flockmq.session.limits import Limits
from flockmq.session.remote_session import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    pair,
)
from unit.broker.durable.homes import (
    DUP1,
    DUP2,
    QOS1,
    Home,
    all_read,
    back,
    elsewhere,
    heard,
    lag,
    messages_on,
    to_proxy,
)


@pytest.fixture
def home() -> Home:
    return Home(limits=Limits(max_inflight=3, max_mqueue_len=5))


def test_after_a_crash_all_that_may_have_been_sent_comes_again_under_its_packet_id(home: Home) -> None:
    session = home.opened(window=2)
    home.send(session, "1")
    home.send(session, "2", 2)
    home.send(session, "3", 2)
    home.settle()
    session.reported(pair(PUBREC, 2))
    home.settle()
    home.send(session, "never durable")
    other, session = elsewhere(home)
    assert not session.is_connected()
    back(other, session)
    assert heard(session) == [(0x62, 2, b""), (DUP1, 1, b"1"), (DUP2, 3, b"3")]


def test_crashes_leave_no_more_of_a_client_that_reads_nothing_than_its_queue_and_its_window_hold(home: Home) -> None:
    session = home.opened(window=3)
    for crashes in range(4):
        for number in range(1, 9):
            home.send(session, f"{crashes}.{number}")
            home.settle()
            if to_proxy(session).flow == CONGESTED:
                lag(home, session)
        assert len(messages_on(home.disk)) == 8
        assert session.is_congested()
        home, session = elsewhere(home)
        session.resume(home.fresh(window=3))
        to_proxy(session).overflown = lambda: pytest.fail("it is let in, and loses what waited longest")
        home.settle()
        session.send_again()
    assert all_read(home, session) == [b"0.1", b"0.2", b"0.3", b"3.4", b"3.5", b"3.6", b"3.7", b"3.8"]


def test_what_was_received_is_released_before_more_is_sent_where_the_window_is_full(home: Home) -> None:
    session = home.opened(window=1)
    home.send(session, "1", 2)
    home.send(session, "2")
    home.settle()
    other, session = elsewhere(home)
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


def test_what_was_put_while_the_client_was_away_was_never_sent(home: Home) -> None:
    session = home.opened()
    home.send(session, "sent")
    home.settle()
    session.leave(home.router.away4)
    home.send(session, "waits")
    home.settle()
    other, session = elsewhere(home)
    back(other, session)
    assert heard(session) == [(DUP1, 1, b"sent"), (QOS1, 2, b"waits")]


def test_what_was_put_since_the_client_is_back_may_have_been_sent(home: Home) -> None:
    session = home.opened()
    home.send(session, "1")
    session.leave(home.router.away4)
    home.settle()
    back(home, session)
    home.send(session, "2")
    home.settle()
    other, session = elsewhere(home)
    back(other, session)
    assert [first for first, _, _ in heard(session)] == [DUP1, DUP1]


def test_no_packet_id_is_used_for_another_message_soon(home: Home) -> None:
    session = home.opened()
    home.send(session, "1")
    home.settle()
    session.reported(pair(PUBACK, 1))
    home.settle()
    other, session = elsewhere(home)
    back(other, session)
    other.send(session, "2")
    other.settle()
    ((_, packet_id, _),) = heard(session)
    assert packet_id == 1 + NUMBERS_RESERVED + 1


def test_sequences_are_put_down_before_they_are_used(home: Home) -> None:
    session = home.opened()
    for _ in range(2):
        session.messages.last = session.meta.sequences
        home.send(session, "x")
        (op, *_) = [op for op in home.disk.waiting if not callable(op)]
        meta = op[1][b"m"]
        assert meta is not None
        assert decode_meta(meta).sequences == session.messages.last + NUMBERS_RESERVED
        home.settle()
