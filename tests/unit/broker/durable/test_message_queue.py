"""What waits for one client: its bounds, its order, and what expired."""

from __future__ import annotations

import pytest

from flockmq.bounds import (
    GIVEN_UP_WAIT_MAX_S,
    MQUEUE_MAX_BYTES,
)
from flockmq.durable.commit_queue import CommitState
from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import sequence_field
from flockmq.routing.subscriber import UNWANTED
from flockmq.session.limits import Limits
from flockmq.session.remote_session import (
    PUBACK,
    pair,
)
from unit.broker.durable.homes import (
    DUP1,
    DUP2,
    QOS1,
    Home,
    back,
    elsewhere,
    heard,
    messages_on,
    to_proxy,
)


@pytest.fixture
def home() -> Home:
    return Home(limits=Limits(max_inflight=3, max_mqueue_len=5))


def test_a_full_queue_loses_its_oldest_also_on_disk_and_QoS_0_first(home: Home) -> None:
    session = home.opened()
    session.leave(home.router.away4)
    home.send(session, "1")
    home.send(session, "0", 0)
    for number in range(2, 7):
        home.send(session, str(number))  # the last two find no room, and nothing is durable yet
    home.settle()
    assert messages_on(home.disk) == [sequence_field(number) for number in range(2, 7)]
    assert home.router.counters.dropped_queue_full == 2
    back(home, session)
    assert [payload for _, _, payload in heard(session)] == [b"2", b"3", b"4", b"5", b"6"]


def test_MQTT_4_6_0_6_what_waited_at_QoS_0_is_not_overtaken_where_the_window_is_full(home: Home) -> None:
    session = home.opened(window=1)
    session.leave(home.router.away4)
    for payload, qos in (("A", 1), ("B", 1), ("old", 0)):
        home.send(session, payload, qos)
    home.settle()
    back(home, session, window=1)
    home.send(session, "new", 0)
    assert heard(session) == [(QOS1, 1, b"A"), (0x30, 0, b"old"), (0x30, 0, b"new")]
    session.reported(pair(PUBACK, 1))
    assert heard(session) == [(QOS1, 2, b"B")]
    assert (session.messages.waiting(), session.messages.waiting_bytes()) == (0, 0)


def test_MQTT_4_6_0_6_nor_where_the_return_of_the_client_is_not_durable_yet(home: Home) -> None:
    session = home.opened()
    session.leave(home.router.away4)
    home.send(session, "old", 0)
    home.settle()
    session.resume(home.fresh())
    session.send_again()
    home.send(session, "new", 0)
    home.settle()
    assert [payload for _, _, payload in heard(session)] == [b"old", b"new"]


def test_without_QoS_0_in_the_queue_none_of_it_is_put_there() -> None:
    home = Home(limits=Limits(mqueue_store_qos0=False))
    session = home.opened()
    session.leave(home.router.away4)
    home.send(session, "0", 0)
    assert (session.messages.queue, home.router.counters.dropped_away) == (None, 1)


def test_the_queue_is_bounded_in_bytes(home: Home) -> None:
    session = home.opened()
    session.leave(home.router.away4)
    home.send(session, "x" * (MQUEUE_MAX_BYTES - 100))
    home.send(session, "y" * 200)
    home.settle()
    assert messages_on(home.disk) == [sequence_field(2)]
    assert session.messages.queue_bytes < 300


def test_a_message_that_expired_is_not_sent_unless_it_was_before(home: Home) -> None:
    session = home.opened(5, window=1)
    home.send(session, "sent", expiry_s=10)
    home.send(session, "waits", expiry_s=10)
    home.settle()
    home.router.now_s += 20
    to_proxy(session).packets()
    back(home, session, 5)
    packets = to_proxy(session).packets()
    assert [(packet[0], packet[-4:]) for packet in packets] == [(DUP1, b"sent")]
    assert packets[0][7:13] == b"\x05\x02\0\0\0\0"
    assert home.router.counters.dropped_expired == 1
    assert messages_on(home.disk) == [sequence_field(1)]


@pytest.mark.parametrize("durable", range(4))
def test_MQTT_4_6_0_6_what_expired_does_not_come_from_the_next_home_behind_what_came_after_it(durable: int) -> None:
    home = Home()
    session = expiring(home, "1 fades", "2 stays", "3 fades", "4 stays")
    session.send_again()
    home.disk.commit(durable)
    heard = [packet[-7:] for packet in to_proxy(session).packets()]
    other, session = elsewhere(home)
    back(other, session, 5)
    heard += [packet[-7:] for packet in to_proxy(session).packets() if packet[-7:] not in heard]
    assert heard == sorted(heard)
    assert {b"2 stays", b"4 stays"} <= set(heard)


def test_what_expired_is_gone_by_one_commit_and_what_expires_meanwhile_is_sent(home: Home) -> None:
    session = expiring(home, "1", "2 stays", "3", "4 stays")
    home.send(session, "late", 2, expiry_s=1)
    home.settle()
    session.send_again()
    assert to_proxy(session).packets() == []
    assert session.outgoing.is_held_up()
    home.router.now_s += GIVEN_UP_WAIT_MAX_S
    home.disk.commit()
    assert [packet[-4:] for packet in to_proxy(session).packets()] == [b"tays", b"tays", b"late"]
    assert not home.disk.waiting
    assert not session.outgoing.is_held_up()


def test_what_expired_long_before_that_was_durable_is_not_sent(home: Home) -> None:
    session = expiring(home, "1")
    home.send(session, "late", 2, expiry_s=1)
    home.settle()
    session.send_again()
    home.router.now_s += 3 * GIVEN_UP_WAIT_MAX_S
    home.settle()
    assert to_proxy(session).packets() == []
    assert messages_on(home.disk) == []
    assert home.router.counters.dropped_expired == 2


def test_a_client_that_left_meanwhile_gets_what_is_left_when_it_is_back(home: Home) -> None:
    session = expiring(home, "1", "2 stays")
    session.send_again()
    session.leave(home.router.away5)
    home.settle()
    back(home, session, 5)
    assert [packet[-7:] for packet in to_proxy(session).packets()] == [b"2 stays"]


def expiring(home: Home, *payloads: str) -> DurableSession:
    """Its client is back, and hears of these when it is sent what waits; those that don't stay have expired."""
    session = home.opened(5)
    session.leave(home.router.away5)
    for payload in payloads:
        home.send(session, payload, 2, expiry_s=-1 if payload.endswith("stays") else 10)
    home.settle()
    home.router.now_s += 20
    session.resume(home.fresh(5))
    home.settle()
    return session


def test_expiry_goes_by_wall_time_from_home_to_home() -> None:
    home = Home()
    session = home.opened(5)
    session.leave(home.router.away5)
    for expiry_s in (10, 100):
        home.send(session, str(expiry_s), expiry_s=expiry_s)
    home.settle()
    other = Home(home.disk, now_s=5.0)
    other.commit_state = CommitState(home.commit_state.wall_offset_s + 1000.0 - 5.0 + 30.0)  # booted lately, 30 s later
    session = other.restored()
    back(other, session, 5)
    (packet,) = to_proxy(session).packets()
    assert (packet[0], packet[7:13], packet[-3:]) == (QOS1, b"\x05\x02\0\0\0" + bytes((70,)), b"100")


def test_a_QoS_1_message_that_expired_meanwhile_is_left_out_and_one_of_QoS_2_that_may_be_half_done_is_not() -> None:
    home = Home()
    session = home.opened(5)
    home.send(session, "1", 1, expiry_s=10)
    home.send(session, "2", 2, expiry_s=10)
    home.settle()
    other = Home(home.disk, now_s=home.router.now_s + 20)
    session = other.restored()
    back(other, session, 5)
    assert [packet[0] for packet in to_proxy(session).packets()] == [DUP2]
    assert messages_on(home.disk) == [sequence_field(2)]


def test_QoS_0_does_not_wait_where_the_zone_says_so() -> None:
    home = Home(limits=Limits(mqueue_store_qos0=False))
    session = home.opened()
    session.leave(home.router.away4)
    assert session.offer_qos0(b"0\4\0\1ax") == UNWANTED
    assert not session.messages.queue
