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
from flockmq.routing.subscriber import QUEUED, REFUSED, UNWANTED
from flockmq.session.limits import Limits
from flockmq.session.remote_session import (
    PUBACK,
    pair,
)
from unit.broker.durable.session_owner import (
    DUP1,
    DUP2,
    QOS1,
    SessionOwner,
    back,
    elsewhere,
    heard,
    messages_on,
    to_proxy,
)


def test_a_full_queue_loses_its_oldest_also_on_disk_and_QoS_0_first(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session.leave(session_owner.router.away4)
    session_owner.send(session, "1")
    session_owner.send(session, "0", 0)
    for number in range(2, 7):
        session_owner.send(session, str(number))  # the last two find no room, and nothing is durable yet
    session_owner.settle()
    assert messages_on(session_owner.disk) == [sequence_field(number) for number in range(2, 7)]
    assert session_owner.router.counters.dropped_queue_full == 2
    back(session_owner, session)
    assert [payload for _, _, payload in heard(session)] == [b"2", b"3", b"4", b"5", b"6"]


def test_all_that_one_large_message_displaces_is_counted(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session.leave(session_owner.router.away4)
    for size in (MQUEUE_MAX_BYTES // 4,) * 3 + (3 * MQUEUE_MAX_BYTES // 4,):
        session_owner.send(session, "x" * size)
    assert session.messages.waiting() == 1
    assert session_owner.router.counters.dropped_queue_full == 3


def test_MQTT_4_6_0_6_what_waited_at_QoS_0_is_not_overtaken_where_the_window_is_full(
    session_owner: SessionOwner,
) -> None:
    session = session_owner.opened(window=1)
    session.leave(session_owner.router.away4)
    for payload, qos in (("A", 1), ("B", 1), ("old", 0)):
        session_owner.send(session, payload, qos)
    session_owner.settle()
    back(session_owner, session, window=1)
    session_owner.send(session, "new", 0)
    assert heard(session) == [(QOS1, 1, b"A"), (0x30, 0, b"old"), (0x30, 0, b"new")]
    session.reported(pair(PUBACK, 1))
    assert heard(session) == [(QOS1, 2, b"B")]
    assert (session.messages.waiting(), session.messages.waiting_bytes()) == (0, 0)


def test_QoS_0_does_not_wait_while_the_core_is_short_of_memory(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session.leave(session_owner.router.away4)
    session.commit_state.is_short = True
    assert session.offer_qos0(b"0\4\0\1ax") == REFUSED
    session.commit_state.is_short = False
    assert session.offer_qos0(b"0\4\0\1ax") == QUEUED


def test_MQTT_4_6_0_6_nor_where_the_return_of_the_client_is_not_durable_yet(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session.leave(session_owner.router.away4)
    session_owner.send(session, "old", 0)
    session_owner.settle()
    session.resume(session_owner.fresh())
    session.send_again()
    session_owner.send(session, "new", 0)
    session_owner.settle()
    assert [payload for _, _, payload in heard(session)] == [b"old", b"new"]


def test_without_QoS_0_in_the_queue_none_of_it_is_put_there() -> None:
    session_owner = SessionOwner(limits=Limits(mqueue_store_qos0=False))
    session = session_owner.opened()
    session.leave(session_owner.router.away4)
    session_owner.send(session, "0", 0)
    assert (session.messages.queue, session_owner.router.counters.dropped_away) == (None, 1)


def test_the_queue_is_bounded_in_bytes(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session.leave(session_owner.router.away4)
    session_owner.send(session, "x" * (MQUEUE_MAX_BYTES - 100))
    session_owner.send(session, "y" * 200)
    session_owner.settle()
    assert messages_on(session_owner.disk) == [sequence_field(2)]
    assert session.messages.queue_bytes < 300


def test_a_message_that_expired_is_not_sent_unless_it_was_before(session_owner: SessionOwner) -> None:
    session = session_owner.opened(5, window=1)
    session_owner.send(session, "sent", expiry_s=10)
    session_owner.send(session, "waits", expiry_s=10)
    session_owner.settle()
    session_owner.router.host.now_s += 20
    to_proxy(session).packets()
    back(session_owner, session, 5)
    packets = to_proxy(session).packets()
    assert [(packet[0], packet[-4:]) for packet in packets] == [(DUP1, b"sent")]
    assert packets[0][7:13] == b"\x05\x02\0\0\0\0"
    assert session_owner.router.counters.dropped_expired == 1
    assert messages_on(session_owner.disk) == [sequence_field(1)]


@pytest.mark.parametrize("durable", range(4))
def test_MQTT_4_6_0_6_what_expired_does_not_come_from_the_next_owner_behind_what_came_after_it(durable: int) -> None:
    session_owner = SessionOwner()
    session = expiring(session_owner, "1 fades", "2 stays", "3 fades", "4 stays")
    session.send_again()
    session_owner.disk.commit(durable)
    heard = [packet[-7:] for packet in to_proxy(session).packets()]
    other, session = elsewhere(session_owner)
    back(other, session, 5)
    heard += [packet[-7:] for packet in to_proxy(session).packets() if packet[-7:] not in heard]
    assert heard == sorted(heard)
    assert {b"2 stays", b"4 stays"} <= set(heard)


def test_what_expired_is_gone_by_one_commit_and_what_expires_meanwhile_is_sent(session_owner: SessionOwner) -> None:
    session = expiring(session_owner, "1", "2 stays", "3", "4 stays")
    session_owner.send(session, "late", 2, expiry_s=1)
    session_owner.settle()
    session.send_again()
    assert to_proxy(session).packets() == []
    assert session.outgoing.is_held_up()
    session_owner.router.host.now_s += GIVEN_UP_WAIT_MAX_S
    session_owner.disk.commit()
    assert [packet[-4:] for packet in to_proxy(session).packets()] == [b"tays", b"tays", b"late"]
    assert not session_owner.disk.waiting
    assert not session.outgoing.is_held_up()


def test_what_expired_long_before_that_was_durable_is_not_sent(session_owner: SessionOwner) -> None:
    session = expiring(session_owner, "1")
    session_owner.send(session, "late", 2, expiry_s=1)
    session_owner.settle()
    session.send_again()
    session_owner.router.host.now_s += 3 * GIVEN_UP_WAIT_MAX_S
    session_owner.settle()
    assert to_proxy(session).packets() == []
    assert messages_on(session_owner.disk) == []
    assert session_owner.router.counters.dropped_expired == 2


def test_a_client_that_left_meanwhile_gets_what_is_left_when_it_is_back(session_owner: SessionOwner) -> None:
    session = expiring(session_owner, "1", "2 stays")
    session.send_again()
    session.leave(session_owner.router.away5)
    session_owner.settle()
    back(session_owner, session, 5)
    assert [packet[-7:] for packet in to_proxy(session).packets()] == [b"2 stays"]


def expiring(session_owner: SessionOwner, *payloads: str) -> DurableSession:
    """Its client is back, and hears of these when it is sent what waits; those that don't stay have expired."""
    session = session_owner.opened(5)
    session.leave(session_owner.router.away5)
    for payload in payloads:
        session_owner.send(session, payload, 2, expiry_s=-1 if payload.endswith("stays") else 10)
    session_owner.settle()
    session_owner.router.host.now_s += 20
    session.resume(session_owner.fresh(5))
    session_owner.settle()
    return session


def test_expiry_goes_by_wall_time_from_owner_to_owner() -> None:
    session_owner = SessionOwner()
    session = session_owner.opened(5)
    session.leave(session_owner.router.away5)
    for expiry_s in (10, 100):
        session_owner.send(session, str(expiry_s), expiry_s=expiry_s)
    session_owner.settle()
    other = SessionOwner(session_owner.disk, now_s=5.0)
    other.commit_state = CommitState(session_owner.commit_state.wall_offset_s + 1000.0 - 5.0 + 30.0)
    session = other.restored()
    back(other, session, 5)
    (packet,) = to_proxy(session).packets()
    assert (packet[0], packet[7:13], packet[-3:]) == (QOS1, b"\x05\x02\0\0\0" + bytes((70,)), b"100")


def test_a_QoS_1_message_that_expired_meanwhile_is_left_out_and_one_of_QoS_2_that_may_be_half_done_is_not() -> None:
    session_owner = SessionOwner()
    session = session_owner.opened(5)
    session_owner.send(session, "1", 1, expiry_s=10)
    session_owner.send(session, "2", 2, expiry_s=10)
    session_owner.settle()
    other = SessionOwner(session_owner.disk, now_s=session_owner.router.host.now_s + 20)
    session = other.restored()
    back(other, session, 5)
    assert [packet[0] for packet in to_proxy(session).packets()] == [DUP2]
    assert messages_on(session_owner.disk) == [sequence_field(2)]


def test_QoS_0_does_not_wait_where_the_zone_says_so() -> None:
    session_owner = SessionOwner(limits=Limits(mqueue_store_qos0=False))
    session = session_owner.opened()
    session.leave(session_owner.router.away4)
    assert session.offer_qos0(b"0\4\0\1ax") == UNWANTED
    assert not session.messages.queue
