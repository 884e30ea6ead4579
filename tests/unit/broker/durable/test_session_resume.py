"""A client that comes back to its durable session, at the same owner."""

from __future__ import annotations

from flockmq.durable.session_fields import sequence_field
from flockmq.session.remote_session import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    pair,
)
from unit.broker.durable.session_owner import (
    DUP1,
    QOS1,
    QOS2,
    SessionOwner,
    all_read,
    back,
    full,
    heard,
    lag,
    messages_on,
    to_proxy,
)


def test_a_client_that_comes_back_to_a_full_queue_is_let_in_and_gets_all_of_it_if_it_reads(
    session_owner: SessionOwner,
) -> None:
    session = full(session_owner)
    session.resume(session_owner.fresh(window=1))
    to_proxy(session).overflown = lambda: session.leave(session_owner.router.away4)
    session_owner.send(session, "before CONNACK")
    session_owner.settle()
    session.send_again()
    session_owner.send(session, "behind it")
    session_owner.settle()
    assert all_read(session_owner, session) == [b"0", b"1", b"2", b"3", b"4", b"before CONNACK", b"behind it"]
    assert session_owner.router.counters.dropped_queue_full == 0


def test_a_client_that_comes_back_to_a_full_queue_and_lags_stays_in_and_loses_the_oldest(
    session_owner: SessionOwner,
) -> None:
    session = full(session_owner)
    back(session_owner, session, window=1)
    to_proxy(session).overflown = lambda: session.leave(session_owner.router.away4)
    session_owner.send(session, "in the room of what was sent")
    lag(session_owner, session)
    session_owner.send(session, "behind it")
    session_owner.settle()
    assert session.is_connected()
    assert all_read(session_owner, session) == [b"0", b"2", b"3", b"4", b"in the room of what was sent", b"behind it"]
    assert session_owner.router.counters.dropped_queue_full == 1


def test_a_client_that_came_back_and_has_read_half_of_it_is_cut_off_as_any_other(session_owner: SessionOwner) -> None:
    session = full(session_owner)
    back(session_owner, session, window=1)
    to_proxy(session).overflown = lambda: session.leave(session_owner.router.away4)
    for packet_id in (1, 2, 3):
        session.reported(pair(PUBACK, packet_id))
        session_owner.settle()
    for number in range(5):
        if number == 4:
            lag(session_owner, session)
        session_owner.send(session, str(number))
        assert session.is_connected() == (number != 4)


def test_what_comes_while_the_client_is_away_is_put_once_and_waits(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session.leave(session_owner.router.away4)
    session_owner.send(session, "0", 0)
    session_owner.send(session, "1")
    session_owner.send(session, "2", 2)
    session_owner.settle()
    assert len(messages_on(session_owner.disk)) == 2
    back(session_owner, session)
    assert heard(session) == [(0x30, 0, b"0"), (QOS1, 1, b"1"), (QOS2, 2, b"2")]


def test_nothing_is_said_between_a_resumption_and_send_again(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session_owner.send(session, "1", 2)
    session_owner.settle()
    session.reported(pair(PUBREC, 1))
    session_owner.send(session, "2")
    session_owner.commit_state.request_barriers()
    session.resume(session_owner.fresh())
    session_owner.settle()
    assert heard(session) == []
    session.send_again()
    assert heard(session) == [(0x62, 1, b""), (QOS1, 2, b"2")]


def test_nothing_is_sent_before_it_is_durable_that_the_client_is_back_whatever_is_lost_meanwhile(
    session_owner: SessionOwner,
) -> None:
    session = session_owner.opened()
    session.leave(session_owner.router.away4)
    session_owner.send(session, "1")
    session_owner.settle()
    session.resume(session_owner.fresh())
    session.send_again()
    session_owner.commit_state.request_barriers()
    session.leave(session_owner.router.away4)
    session.resume(session_owner.fresh())
    session.send_again()
    session.attach(session_owner.fresh().sink, session_owner.limits, 32, 0)  # its session proxy's node has another link
    session.send_again()
    session.send_again()
    session_owner.commit_state.request_barriers()
    session_owner.disk.commit(2)
    assert heard(session) == [], "only its first return is durable, and it left since then"
    session_owner.settle()
    assert heard(session) == [(QOS1, 1, b"1")]


def test_a_PUBREC_that_is_not_durable_yet_when_the_client_is_back_is_answered_when_it_is(
    session_owner: SessionOwner,
) -> None:
    session = session_owner.opened()
    session_owner.send(session, "1", 2)
    session_owner.settle()
    session.reported(pair(PUBREC, 1))
    session_owner.commit_state.request_barriers()
    session.resume(session_owner.fresh())
    session.send_again()
    assert heard(session) == []
    session_owner.settle()
    assert heard(session) == [(0x62, 1, b"")]


def test_a_smaller_window_holds_for_what_is_sent_again(session_owner: SessionOwner) -> None:
    session = session_owner.opened(window=3)
    for number in range(4):
        session_owner.send(session, str(number))
    session_owner.settle()
    back(session_owner, session, window=2)
    assert [(first, payload) for first, _, payload in heard(session)] == [(DUP1, b"0"), (DUP1, b"1")]
    session.reported(pair(PUBACK, 2) + pair(PUBACK, 1))
    assert [(first, payload) for first, _, payload in heard(session)] == [(DUP1, b"2"), (QOS1, b"3")]


def test_a_session_proxy_that_is_still_there_may_have_answered_what_is_yet_to_be_sent_again(
    session_owner: SessionOwner,
) -> None:
    session = session_owner.opened(window=3)
    for number in range(4):
        session_owner.send(session, str(number), 2)
    session_owner.settle()
    session.resume(session_owner.fresh(window=1))
    session.send_again()
    heard(session)
    session.reported(pair(PUBREC, 2) + pair(PUBREC, 3))
    session_owner.settle()
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(0x62, 2), (0x62, 3)]
    session.reported(pair(PUBREC, 1) + pair(PUBCOMP, 1) + pair(PUBCOMP, 2) + pair(PUBCOMP, 3))
    session_owner.settle()
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(0x62, 1)]
    session.reported(pair(PUBCOMP, 1))
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(QOS2, 4)]


def test_a_PUBACK_may_come_before_the_message_is_sent_again(session_owner: SessionOwner) -> None:
    session = session_owner.opened(window=3)
    for number in range(4):
        session_owner.send(session, str(number))
    session_owner.settle()
    session.resume(session_owner.fresh(window=1))
    session.send_again()
    session.reported(pair(PUBACK, 2))
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(DUP1, 1)]
    session.reported(pair(PUBACK, 1))
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(DUP1, 3)]
    session.reported(pair(PUBACK, 3))
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(QOS1, 4)]


def test_the_client_gets_what_waits_in_the_version_that_it_came_back_with(session_owner: SessionOwner) -> None:
    session = session_owner.opened(5)
    session_owner.send(session, "sent")
    session_owner.settle()
    session.leave(session_owner.router.away5)
    session_owner.send(session, "waits", 2)
    session_owner.send(session, "0", 0)
    session_owner.settle()
    back(session_owner, session, 4)
    assert heard(session) == [(DUP1, 1, b"sent"), (QOS2, 2, b"waits"), (0x30, 0, b"0")]
    session.leave(session_owner.router.away4)
    back(session_owner, session, 5)
    assert [packet[7:8] for packet in to_proxy(session).packets()] == [b"\0", b"\0"]


def test_a_message_that_is_too_large_for_the_client_ends_there(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session_owner.send(session, "sent before" * 9)
    session_owner.settle()
    session.leave(session_owner.router.away4)
    session_owner.send(session, "waits too" * 9)
    session_owner.send(session, "small")
    back(session_owner, session, max_packet_bytes=50)
    assert heard(session) == [(QOS1, 3, b"small")]
    assert session_owner.router.counters.dropped_too_large == 2
    assert messages_on(session_owner.disk) == [sequence_field(3)]
