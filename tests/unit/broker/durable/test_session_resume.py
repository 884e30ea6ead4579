"""A client that comes back to its durable session, at the same owner."""

from __future__ import annotations

import pytest

from flockmq.durable.session_fields import sequence_field
from flockmq.session.limits import Limits
from flockmq.session.remote_session import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    pair,
)
from unit.broker.durable.homes import (
    DUP1,
    QOS1,
    QOS2,
    Home,
    all_read,
    back,
    full,
    heard,
    lag,
    messages_on,
    to_proxy,
)


@pytest.fixture
def home() -> Home:
    return Home(limits=Limits(max_inflight=3, max_mqueue_len=5))


def test_a_client_that_comes_back_to_a_full_queue_is_let_in_and_gets_all_of_it_if_it_reads(home: Home) -> None:
    session = full(home)
    session.resume(home.fresh(window=1))
    to_proxy(session).overflown = lambda: session.leave(home.router.away4)
    home.send(session, "before CONNACK")
    home.settle()
    session.send_again()
    home.send(session, "behind it")
    home.settle()
    assert all_read(home, session) == [b"0", b"1", b"2", b"3", b"4", b"before CONNACK", b"behind it"]
    assert home.router.counters.dropped_queue_full == 0


def test_a_client_that_comes_back_to_a_full_queue_and_lags_stays_in_and_loses_the_oldest(home: Home) -> None:
    session = full(home)
    back(home, session, window=1)
    to_proxy(session).overflown = lambda: session.leave(home.router.away4)
    home.send(session, "in the room of what was sent")
    lag(home, session)
    home.send(session, "behind it")
    home.settle()
    assert session.is_connected()
    assert all_read(home, session) == [b"0", b"2", b"3", b"4", b"in the room of what was sent", b"behind it"]
    assert home.router.counters.dropped_queue_full == 1


def test_a_client_that_came_back_and_has_read_half_of_it_is_cut_off_as_any_other(home: Home) -> None:
    session = full(home)
    back(home, session, window=1)
    to_proxy(session).overflown = lambda: session.leave(home.router.away4)
    for packet_id in (1, 2, 3):
        session.reported(pair(PUBACK, packet_id))
        home.settle()
    for number in range(5):
        if number == 4:
            lag(home, session)
        home.send(session, str(number))
        assert session.is_connected() == (number != 4)


def test_what_comes_while_the_client_is_away_is_put_once_and_waits(home: Home) -> None:
    session = home.opened()
    session.leave(home.router.away4)
    home.send(session, "0", 0)
    home.send(session, "1")
    home.send(session, "2", 2)
    home.settle()
    assert len(messages_on(home.disk)) == 2
    back(home, session)
    assert heard(session) == [(0x30, 0, b"0"), (QOS1, 1, b"1"), (QOS2, 2, b"2")]


def test_nothing_is_said_between_a_resumption_and_send_again(home: Home) -> None:
    session = home.opened()
    home.send(session, "1", 2)
    home.settle()
    session.reported(pair(PUBREC, 1))
    home.send(session, "2")
    home.commit_state.request_barriers()
    session.resume(home.fresh())
    home.settle()
    assert heard(session) == []
    session.send_again()
    assert heard(session) == [(0x62, 1, b""), (QOS1, 2, b"2")]


def test_nothing_is_sent_before_it_is_durable_that_the_client_is_back_whatever_is_lost_meanwhile(home: Home) -> None:
    session = home.opened()
    session.leave(home.router.away4)
    home.send(session, "1")
    home.settle()
    session.resume(home.fresh())
    session.send_again()
    home.commit_state.request_barriers()
    session.leave(home.router.away4)
    session.resume(home.fresh())
    session.send_again()
    session.attach(home.fresh().sink, home.limits, 32, 0)  # its front's node has another link
    session.send_again()
    session.send_again()
    home.commit_state.request_barriers()
    home.disk.commit(2)
    assert heard(session) == [], "only its first return is durable, and it left since then"
    home.settle()
    assert heard(session) == [(QOS1, 1, b"1")]


def test_a_PUBREC_that_is_not_durable_yet_when_the_client_is_back_is_answered_when_it_is(home: Home) -> None:
    session = home.opened()
    home.send(session, "1", 2)
    home.settle()
    session.reported(pair(PUBREC, 1))
    home.commit_state.request_barriers()
    session.resume(home.fresh())
    session.send_again()
    assert heard(session) == []
    home.settle()
    assert heard(session) == [(0x62, 1, b"")]


def test_a_smaller_window_holds_for_what_is_sent_again(home: Home) -> None:
    session = home.opened(window=3)
    for number in range(4):
        home.send(session, str(number))
    home.settle()
    back(home, session, window=2)
    assert [(first, payload) for first, _, payload in heard(session)] == [(DUP1, b"0"), (DUP1, b"1")]
    session.reported(pair(PUBACK, 2) + pair(PUBACK, 1))
    assert [(first, payload) for first, _, payload in heard(session)] == [(DUP1, b"2"), (QOS1, b"3")]


def test_a_front_that_is_still_there_may_have_answered_what_is_yet_to_be_sent_again(home: Home) -> None:
    session = home.opened(window=3)
    for number in range(4):
        home.send(session, str(number), 2)
    home.settle()
    session.resume(home.fresh(window=1))
    session.send_again()
    heard(session)
    session.reported(pair(PUBREC, 2) + pair(PUBREC, 3))
    home.settle()
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(0x62, 2), (0x62, 3)]
    session.reported(pair(PUBREC, 1) + pair(PUBCOMP, 1) + pair(PUBCOMP, 2) + pair(PUBCOMP, 3))
    home.settle()
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(0x62, 1)]
    session.reported(pair(PUBCOMP, 1))
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(QOS2, 4)]


def test_a_PUBACK_may_come_before_the_message_is_sent_again(home: Home) -> None:
    session = home.opened(window=3)
    for number in range(4):
        home.send(session, str(number))
    home.settle()
    session.resume(home.fresh(window=1))
    session.send_again()
    session.reported(pair(PUBACK, 2))
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(DUP1, 1)]
    session.reported(pair(PUBACK, 1))
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(DUP1, 3)]
    session.reported(pair(PUBACK, 3))
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(QOS1, 4)]


def test_the_client_gets_what_waits_in_the_version_that_it_came_back_with(home: Home) -> None:
    session = home.opened(5)
    home.send(session, "sent")
    home.settle()
    session.leave(home.router.away5)
    home.send(session, "waits", 2)
    home.send(session, "0", 0)
    home.settle()
    back(home, session, 4)
    assert heard(session) == [(DUP1, 1, b"sent"), (QOS2, 2, b"waits"), (0x30, 0, b"0")]
    session.leave(home.router.away4)
    back(home, session, 5)
    assert [packet[7:8] for packet in to_proxy(session).packets()] == [b"\0", b"\0"]


def test_a_message_that_is_too_large_for_the_client_ends_there(home: Home) -> None:
    session = home.opened()
    home.send(session, "sent before" * 9)
    home.settle()
    session.leave(home.router.away4)
    home.send(session, "waits too" * 9)
    home.send(session, "small")
    back(home, session, max_packet_bytes=50)
    assert heard(session) == [(QOS1, 3, b"small")]
    assert home.router.counters.dropped_too_large == 2
    assert messages_on(home.disk) == [sequence_field(3)]
