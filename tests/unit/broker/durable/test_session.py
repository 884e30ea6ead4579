"""A session at its home: what is sent when, what is on disk when, and what another home makes of that."""

from __future__ import annotations

import pytest

from flockmq.bounds import (
    GIVEN_UP_WAIT_MAX_S,
    MQUEUE_AHEAD_MAX,
    MQUEUE_MAX_BYTES,
    NUMBERS_RESERVED,
    SINK_CONGESTED_MAX_S,
    SINK_HELD_MAX_S,
)
from flockmq.durable.commit_queue import CommitState
from flockmq.durable.message_queue import PACKET_IDS
from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import META, Meta, decode_meta, sequence_field
from flockmq.mqtt.message import Will, publication
from flockmq.routing.message_id import Origins, number_of, origin_of, session_source, source_of
from flockmq.routing.sink import CONGESTED, FLOWING, LAGGING
from flockmq.routing.subscriber import UNWANTED, Subscription
from flockmq.session.limits import Limits
from flockmq.session.remote_session import (
    DROPPED,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREC_REFUSED,
    PUBREL,
    PUBREL_UNKNOWN,
    pair,
)
from unit.broker.durable.homes import CLIENT, IDENTITY, Disk, Home, ToProxy, add_subscription, to_proxy

QOS1, QOS2, DUP1, DUP2 = 0x32, 0x34, 0x3A, 0x3C


@pytest.fixture
def home() -> Home:
    return Home(limits=Limits(max_inflight=3, max_mqueue_len=5))


def heard(session: DurableSession) -> list[tuple[int, int, bytes]]:
    """(first byte, packet id, payload) of each packet; of 3.1.1, on a topic of one letter."""
    packets = to_proxy(session).packets()
    return [
        (packet[0], 0, packet[5:])
        if packet[0] == 0x30
        else (packet[0], packet[2] << 8 | packet[3], b"")
        if packet[0] == 0x62
        else (packet[0], packet[5] << 8 | packet[6], packet[7:])
        for packet in packets
    ]


def origin(number: int) -> bytes:
    """Of what the client publishes."""
    return origin_of(IDENTITY[:8], number)


def messages_on(disk: Disk) -> list[bytes]:
    return sorted(field for field in disk.fields() if field[:1] == b"q")


def back(home: Home, session: DurableSession, version: int = 4, *, window: int = 32, max_packet_bytes: int = 0) -> None:
    """A connection takes the session over, and hears it all."""
    session.resume(home.fresh(version, window=window, max_packet_bytes=max_packet_bytes))
    home.settle()
    session.send_again()
    home.settle()


# On its way to the client.


def test_a_message_is_sent_when_it_is_durable(home: Home) -> None:
    session = home.opened()
    home.send(session, "x")
    home.commit_state.request_barriers()
    assert heard(session) == []
    home.disk.commit()
    assert heard(session) == [(QOS1, 1, b"x")]
    assert messages_on(home.disk) == [sequence_field(1)]


def test_one_barrier_stands_behind_all_that_a_turn_put(home: Home) -> None:
    session = home.opened()
    home.send(session, "1")
    home.send(session, "2")
    home.commit_state.request_barriers()
    home.send(session, "3")
    home.commit_state.request_barriers()
    assert len([op for op in home.disk.waiting if callable(op)]) == 2
    home.disk.commit(4)
    assert [payload for _, _, payload in heard(session)] == [b"1", b"2"]
    home.disk.commit()
    assert [payload for _, _, payload in heard(session)] == [b"3"]


def test_an_acknowledgement_is_settled_when_it_is_durable_and_makes_room_at_once(home: Home) -> None:
    session = home.opened(window=1)
    home.send(session, "1")
    home.send(session, "2")
    home.settle()
    assert heard(session) == [(QOS1, 1, b"1")]
    session.reported(pair(PUBACK, 1))
    assert heard(session) == [(QOS1, 2, b"2")]
    assert to_proxy(session).told() == []
    home.settle()
    assert to_proxy(session).told() == [(PUBACK, 1)]
    assert messages_on(home.disk) == [sequence_field(2)]


def test_PUBREL_is_sent_when_it_is_durable_that_PUBREC_came(home: Home) -> None:
    session = home.opened()
    home.send(session, "x", 2)
    home.settle()
    assert heard(session) == [(QOS2, 1, b"x")]
    session.reported(pair(PUBREC, 1) + pair(PUBREC, 1))
    home.commit_state.request_barriers()
    assert heard(session) == []
    home.disk.commit()
    assert heard(session) == [(0x62, 1, b"")]
    session.reported(pair(PUBCOMP, 1))
    home.settle()
    assert to_proxy(session).told() == [(PUBCOMP, 1)]
    assert messages_on(home.disk) == []


def test_MQTT_4_6_0_4_PUBRELs_come_in_the_order_of_the_PUBRECs(home: Home) -> None:
    session = home.opened()
    for payload in "123":
        home.send(session, payload, 2)
    home.settle()
    heard(session)
    session.reported(pair(PUBREC, 2) + pair(PUBREC, 3) + pair(PUBREC, 1))
    home.settle()
    assert [packet_id for _, packet_id, _ in heard(session)] == [2, 3, 1]
    back(home, session)
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(0x62, 2), (0x62, 3), (0x62, 1)]


def test_a_PUBREC_that_refuses_ends_the_exchange(home: Home) -> None:
    session = home.opened(window=1)
    home.send(session, "1", 2)
    home.send(session, "2", 2)
    home.settle()
    session.reported(pair(PUBREC_REFUSED, 1))
    home.settle()
    assert heard(session) == [(QOS2, 1, b"1"), (QOS2, 2, b"2")]
    assert to_proxy(session).told() == [(PUBREC_REFUSED, 1)]


def test_what_is_unknown_is_settled_so_that_the_front_forgets_it(home: Home) -> None:
    session = home.opened()
    session.reported(pair(PUBACK, 5) + pair(PUBCOMP, 6) + pair(PUBREC_REFUSED, 7) + pair(PUBREC, 8))
    home.settle()
    assert to_proxy(session).told() == [(PUBACK, 5), (PUBCOMP, 6), (PUBREC_REFUSED, 7)]
    assert heard(session) == [(0x62, 8, b"")]


def test_a_packet_id_that_is_still_in_use_blocks_what_would_get_it(home: Home) -> None:
    session = home.opened()
    home.send(session, "old")
    home.settle()
    session.messages.last = session.outgoing.committed = PACKET_IDS - 1
    session.meta.sequences = PACKET_IDS + 100
    for payload in ("last id", "again 1", "2"):
        home.send(session, payload)
    home.settle()
    assert [(packet_id, payload) for _, packet_id, payload in heard(session)] == [(1, b"old"), (PACKET_IDS, b"last id")]
    session.reported(pair(PUBACK, 1))
    assert heard(session) == [], "its front would take it for a repeat"
    home.settle()
    assert [(packet_id, payload) for _, packet_id, payload in heard(session)] == [(1, b"again 1"), (2, b"2")]


@pytest.mark.parametrize("ends", [PUBACK, PUBCOMP, PUBREC_REFUSED])
def test_what_a_front_reports_of_another_home_blocks_its_packet_id_until_it_is_settled(home: Home, ends: int) -> None:
    session = home.opened()
    session.reported(pair(ends, 1))
    session.outgoing.committed = 1
    home.send(session, "1")
    session.outgoing.send_waiting()
    assert heard(session) == []
    home.settle()
    assert heard(session) == [(QOS1, 1, b"1")]


def test_a_client_that_lags_is_cut_off_when_it_has_no_room(home: Home) -> None:
    session = home.opened(window=3)
    to_proxy(session).overflown = lambda: session.leave(home.router.away4)
    for number in range(9):
        if number == 8:
            lag(home, session)
        home.send(session, str(number))
        home.settle()
        assert session.is_connected() == (number != 8)
    assert home.router.counters.dropped_queue_full == 1  # as if it had been away before


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_client_that_reads_gets_all_that_comes_before_its_publishers_pause(home: Home, is_durable: bool) -> None:
    """So does one that the store holds up: what waited for that comes at once."""
    session = home.opened(window=3)
    to_proxy(session).overflown = lambda: pytest.fail("it does nothing but read")
    sent = [b"%d" % number for number in range(40)]
    for payload in sent:
        home.send(session, payload.decode())
        if is_durable:
            home.settle()
    home.router.now_s += SINK_CONGESTED_MAX_S / 2 if is_durable else 60.0
    to_proxy(session).check_progress(session.outgoing.is_held_up())
    home.send(session, "last")
    home.settle()
    assert all_read(home, session) == [*sent, b"last"]
    assert home.router.counters.dropped_queue_full == 0


def test_what_waits_for_a_client_that_reads_is_bounded(home: Home) -> None:
    session = home.opened(window=3)
    to_proxy(session).overflown = lambda: session.leave(home.router.away4)
    for number in range(5 + MQUEUE_AHEAD_MAX):
        home.send(session, str(number))
    assert session.is_connected()
    home.send(session, "one more")
    assert not session.is_connected()


def test_of_what_is_beyond_the_queue_of_a_client_that_goes_the_oldest_goes(home: Home) -> None:
    session = home.opened(window=3)
    for number in range(20):
        home.send(session, str(number))
    home.settle()
    session.leave(home.router.away4)
    home.settle()
    assert (session.messages.waiting(), len(messages_on(home.disk))) == (5, 8)
    assert home.router.counters.dropped_queue_full == 12
    back(home, session, window=3)
    assert all_read(home, session) == [b"0", b"1", b"2", b"15", b"16", b"17", b"18", b"19"]


def lag(home: Home, session: DurableSession) -> None:
    """It acknowledged nothing for as long as publishers are paused for it."""
    front = to_proxy(session)
    assert front.flow == CONGESTED
    home.router.now_s += SINK_CONGESTED_MAX_S + 0.1
    front.check_progress(session.outgoing.is_held_up())
    assert front.flow == LAGGING


def all_read(home: Home, session: DurableSession) -> list[bytes]:
    """What its client gets when it acknowledges all that comes."""
    received = []
    while packets := heard(session):
        for _, packet_id, payload in packets:
            received.append(payload)
            session.reported(pair(PUBACK, packet_id))
        home.settle()
    return received


# Its pace.


def test_publishers_pause_while_more_than_half_of_the_queue_waits(home: Home) -> None:
    session = home.opened(window=1)
    for number in range(3):
        home.send(session, str(number))
        home.settle()
    assert to_proxy(session).flows == []
    home.send(session, "3")
    assert to_proxy(session).flows == [CONGESTED]
    home.settle()
    session.reported(pair(PUBACK, 1))
    assert to_proxy(session).flows == [CONGESTED, FLOWING]


def test_publishers_go_on_when_a_client_acknowledges_nothing_or_too_little(home: Home) -> None:
    for acknowledges, after_s in ((False, SINK_CONGESTED_MAX_S), (True, SINK_HELD_MAX_S)):
        session = home.opened(window=1)
        for number in range(5):
            home.send(session, str(number))
        home.settle()
        front, began_s = to_proxy(session), home.router.now_s
        while front.flow == CONGESTED:
            home.router.now_s += 0.25
            if acknowledges:
                front.progressed(True)
            front.check_progress(session.outgoing.is_held_up())
        assert front.flow == LAGGING
        assert home.router.now_s - began_s == pytest.approx(after_s, abs=0.5)
        session.reported(pair(PUBACK, 1) + pair(PUBACK, 2))
        home.settle()
        session.reported(pair(PUBACK, 3))
        assert front.flow == FLOWING


def test_publishers_wait_as_long_as_it_is_the_store_that_must_go_on(home: Home) -> None:
    session = home.opened(window=1)
    for number in range(4):
        home.send(session, str(number))
    home.commit_state.request_barriers()
    front = to_proxy(session)
    home.router.now_s += 60.0
    front.check_progress(session.outgoing.is_held_up())
    assert front.flow == CONGESTED, "nothing is durable, so nothing was sent"
    home.settle()
    home.router.now_s += SINK_CONGESTED_MAX_S + 0.1
    front.check_progress(session.outgoing.is_held_up())
    assert front.flow == LAGGING, "what was sent is the client's to acknowledge"


def test_publishers_wait_for_PUBREL_to_be_durable(home: Home) -> None:
    session = home.opened(window=1)
    for number in range(5):
        home.send(session, str(number), 2)
    home.settle()
    assert not session.outgoing.is_held_up()
    session.reported(pair(PUBREC, 1))
    assert session.outgoing.is_held_up()
    home.settle()
    assert not session.outgoing.is_held_up()


def test_publishers_pause_for_a_client_that_comes_back_to_a_full_queue(home: Home) -> None:
    session = full(home)
    back(home, session, window=1)
    home.send(session, "more")
    assert to_proxy(session).flow == CONGESTED


# Away and back.


def full(home: Home) -> DurableSession:
    """One whose client is away, with five messages, and no room for more."""
    session = home.opened(window=1)
    session.leave(home.router.away4)
    for number in range(5):
        home.send(session, str(number))
    home.settle()
    return session


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


# The end.


def test_a_session_that_ends_is_dropped_and_what_was_under_way_does_nothing(home: Home) -> None:
    session = home.opened()
    sink = to_proxy(session)
    home.send(session, "1")
    session.reported(pair(PUBACK, 77))
    home.commit_state.request_barriers()
    home.send(session, "2")
    session.erase()
    home.settle()
    assert (sink.packets(), sink.told(), home.disk.sessions) == ([], [], {})


def test_a_session_that_goes_on_elsewhere_stays_on_disk(home: Home) -> None:
    session = home.opened()
    home.send(session, "1")
    home.settle()
    session.abandon()
    home.settle()
    assert messages_on(home.disk) == [sequence_field(1)]


# What is retained, and owed to it.


def owed(home: Home, *given: str) -> DurableSession:
    """A session that is owed what is retained for `a/#`, and was given the messages of these topics."""
    session = home.opened()
    subscription = Subscription(session, b"a/#", 2, False, False, b"")
    add_subscription(session, subscription)
    session.await_retained(subscription)
    home.settle()
    for topic in given:
        session.record.begin_retained(b"a/#", topic.encode(), session.usage)
        home.send(session, topic)
        session.record.end_retained()
    return session


@pytest.mark.parametrize("durable", range(4))
def test_how_far_what_is_retained_was_given_is_durable_with_each_message(home: Home, durable: int) -> None:
    owed(home, "a/1", "a/2", "a/3")
    ops = [op for op in home.disk.waiting if not callable(op)]
    home.disk.waiting[:] = [op for op in ops if b"m" not in op[1]]
    home.disk.commit(durable)
    later = home.restored()
    assert len(messages_on(home.disk)) == durable
    assert later.record.retained_up_to(b"a/#") == [b"", b"a/1", b"a/2", b"a/3"][durable]


def test_a_message_beside_what_is_retained_says_nothing_of_it(home: Home) -> None:
    session = owed(home, "a/1")
    home.send(session, "live")
    home.settle()
    assert home.restored().record.retained_up_to(b"a/#") == b"a/1"


def test_how_far_it_was_given_is_written_again(home: Home) -> None:
    session = owed(home, "a/1")
    home.settle()
    home.disk.sessions.clear()
    session.write_again()
    home.settle()
    assert home.restored().record.retained_up_to(b"a/#") == b"a/1"


@pytest.mark.parametrize("how", ["all given", "subscribed anew", "unsubscribed"])
def test_nothing_is_noted_any_more_when_it_is_not_owed_or_is_owed_anew(home: Home, how: str) -> None:
    session = owed(home, "a/1")
    subscription = session.subscriptions.find(b"a/#")
    assert subscription is not None
    if how == "all given":
        session.retained_sent(subscription)
    elif how == "subscribed anew":
        session.await_retained(subscription)
    else:
        session.remove_subscription(b"a/#")
    home.settle()
    assert session.record.retained_up_to(b"a/#") == home.restored().record.retained_up_to(b"a/#") == b""
    assert [field for field in home.disk.fields() if field[:1] == b"o"] == []


def test_a_journal_that_refuses_silences_the_session(home: Home) -> None:
    session = home.opened()
    sink = to_proxy(session)
    home.send(session, "1")
    home.commit_state.request_barriers()
    for op in home.disk.waiting:
        if callable(op):
            op(False)
    home.disk.waiting.clear()
    home.send(session, "2")
    home.settle()
    session.erase()
    assert (sink.packets(), home.disk.waiting) == ([], [])


def test_a_clean_start_begins_anew_behind_the_end_of_the_older_session(home: Home) -> None:
    older = home.opened()
    home.send(older, "1")
    older.erase()
    fresh = home.fresh()
    fresh.opened()
    home.send(fresh, "2")
    home.settle()
    assert heard(fresh) == [(QOS1, 1, b"2")]
    assert messages_on(home.disk) == [sequence_field(1)]
    assert home.restored().messages.kept is not None


# What the client publishes.


def test_a_QoS_2_message_has_one_number_until_it_is_released(home: Home) -> None:
    session = home.opened()
    assert [session.origin_for(packet_id) for packet_id in (5, 6, 5)] == [origin(1), origin(2), origin(1)]
    session.reported(pair(PUBREL, 5))
    assert to_proxy(session).told() == []
    home.settle()
    assert to_proxy(session).told() == [(PUBREL, 5)]
    assert session.origin_for(5) == origin(3)
    session.reported(pair(PUBREL, 99) + pair(DROPPED, 6))
    home.settle()
    assert to_proxy(session).told() == [(PUBREL_UNKNOWN, 99), (DROPPED, 6)]
    assert session.origin_for(6) == origin(4)


def test_only_so_many_await_their_PUBREL_and_not_for_ever() -> None:
    home = Home(limits=Limits(max_awaiting_rel=2, await_rel_timeout=10.0))
    session = home.opened()
    assert [session.origin_for(packet_id) for packet_id in (1, 2, 3)] == [origin(1), origin(2), b""]
    home.router.now_s += 11
    assert session.origin_for(3) == origin(3)
    home.settle()
    assert [field for field in home.disk.fields() if field[:1] == b"r"] == [b"r\0\3"]


def test_numbers_and_their_packet_ids_are_known_to_the_next_home(home: Home) -> None:
    session = home.opened()
    session.origin_for(5)
    session.origin_for(6)
    session.reported(pair(PUBREL, 6))
    home.settle()
    session = Home(home.disk).restored()
    assert session.origin_for(5) == origin(1)
    later = session.origin_for(7)
    assert source_of(later) == IDENTITY[:8]
    assert number_of(later) > 2


def test_what_is_published_before_what_comes_again_on_another_connection_makes_no_repeat_of_that(home: Home) -> None:
    session = home.opened()
    again = session.origin_for(5)
    session.resume(home.fresh(identity=IDENTITY[:8] + b"CONNECT2"))
    first = session.origin_for(6)
    assert source_of(first) == session_source(b"CONNECT2")
    home.settle()
    session = Home(home.disk).restored()
    assert [session.origin_for(packet_id) for packet_id in (6, 5)] == [first, again]
    seen = Origins()
    assert [seen.is_new(origin) for origin in (first, again, again)] == [True, True, False]
    assert source_of(session.origin_for(7)) == source_of(first)


def test_what_is_published_on_another_connection_makes_no_repeat_of_what_is_on_its_way(
    home: Home,
) -> None:
    """Its publisher knows that it was accepted, and it may come to other nodes last."""
    session = home.opened()
    late = session.origin_for(5)
    session.reported(pair(PUBREL, 5))
    session.resume(home.fresh(identity=IDENTITY[:8] + b"CONNECT2"))
    first = session.origin_for(5)
    seen = Origins()
    assert [seen.is_new(origin) for origin in (first, late)] == [True, True]


# Another home.


def elsewhere(home: Home) -> tuple[Home, DurableSession]:
    """The home crashes, with all that isn't durable."""
    home.disk.waiting.clear()
    other = Home(home.disk, home.limits, now_s=home.router.now_s)
    return other, other.restored()


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


def test_what_CONNECT_said_and_the_subscriptions_are_known_to_the_next_home(home: Home) -> None:
    will = Will(publication(5, 1, True, b"will", b"gone", b"\x01\x01", 30), 7)
    session = home.opened(5, will=will)
    add_subscription(session, Subscription(session, b"a/+", 2, True, True, b"\x0b\x07"))
    add_subscription(session, Subscription(session, b"b", 1))
    add_subscription(session, Subscription(session, b"c", 0))
    session.remove_subscription(b"b")
    origin = session.will_origin()
    home.settle()
    other, session = elsewhere(home)
    assert [
        (held.filter, held.qos, held.no_local, held.retain_as_published, held.identifiers)
        for held in session.subscriptions.all()
    ] == [(b"a/+", 2, True, True, b"\x0b\x07"), (b"c", 0, False, False, b"")]
    assert (session.meta.expiry_s, session.meta.left_ms, session.sink) == (100, 0, other.router.away5)
    kept = session.meta.will
    assert kept is not None
    message = kept.message
    assert (kept.delay_s, message.packet, message.expiry_s, message.qos, message.retain, message.topic) == (
        7, will.message.packet, 30, 1, True, b"will",
    )  # fmt: skip
    assert session.will_origin() == origin
    assert origin[:8] not in (IDENTITY[:8], IDENTITY[8:])


def test_why_a_will_is_allowed_is_known_to_the_next_home_and_of_that_will_alone(home: Home) -> None:
    message = publication(4, 0, False, b"will", b"gone", b"")
    home.opened(will=Will(message, 7, b"why"))
    home.settle()
    other, session = elsewhere(home)
    assert session.meta.will is not None
    assert session.meta.will.authorization == b"why"
    session.write_again()
    other.settle()
    again, session = elsewhere(other)
    assert session.meta.will is not None
    assert session.meta.will.authorization == b"why"
    session.meta.will_source = b"another!"  # a home of an earlier release had a CONNECT meanwhile
    session.writer.put(session.client_id, META, session.meta.encode())
    again.settle()
    _, session = elsewhere(again)
    assert session.meta.will is not None
    assert session.meta.will.authorization == b""


def test_a_session_knows_since_when_its_client_is_away_and_which_will_still_waits(home: Home) -> None:
    will = Will(publication(4, 0, False, b"will", b"gone", b""), 7)
    session = home.opened(will=will)
    session.leave(home.router.away4, will)
    home.settle()
    home.router.now_s += 5
    other, session = elsewhere(home)
    assert other.commit_state.monotonic_s(session.meta.left_ms) == pytest.approx(home.router.now_s - 5, abs=0.01)
    assert session.meta.will is not None
    session.will_published()
    other.settle()
    assert elsewhere(other)[1].meta.will is None


def test_what_the_store_lost_is_written_again(home: Home) -> None:
    session = home.opened()
    add_subscription(session, Subscription(session, b"a", 1))
    for payload, qos in (("1", 1), ("2", 2), ("3", 1), ("4", 2)):
        home.send(session, payload, qos)
    session.origin_for(5)
    home.settle()
    session.reported(pair(PUBREC, 2))
    home.settle()
    before = dict(home.disk.fields())
    assert len(before) == 7
    home.disk.sessions.clear()
    home.disk.sessions[CLIENT] = {b"q" + bytes(8): b"from before"}
    session.write_again()
    home.settle()
    assert {**home.disk.fields(), b"m": b""} == {**before, b"m": b""}


def test_a_repeated_PUBREC_is_answered_again_once_it_is_durable(home: Home) -> None:
    session = home.opened()
    home.send(session, "x", 2)
    home.settle()
    heard(session)
    session.reported(pair(PUBREC, 1))
    assert heard(session) == []
    home.settle()
    assert heard(session) == [(0x62, 1, b"")]
    session.reported(pair(PUBREC, 1))
    assert heard(session) == [(0x62, 1, b"")]


def test_what_no_home_of_ours_wrote_is_refused() -> None:
    with pytest.raises(ValueError, match="meta field of 0 bytes"):
        Home().restored()
    good = Meta(IDENTITY, 1, 4, None).encode()
    with pytest.raises(ValueError, match="form"):
        decode_meta(b"\x09" + good[1:])


def test_members_of_a_shared_subscription_get_what_a_session_that_ended_left(home: Home) -> None:
    session = home.opened(window=1)
    for payload in "12":
        home.send(session, payload, share=b"$share/g/t")
    home.settle()
    other, session = elsewhere(home)
    other.router.shared.redispatch(session.messages.unacknowledged_shared())
    assert other.router.counters.dropped_no_member == 2


def test_the_way_to_a_front_counts_what_is_not_sent(home: Home) -> None:
    sink = ToProxy(home.router, 4)
    sink.unsendable(0)
    sink.unsendable(10)
    counters = home.router.counters
    assert (counters.dropped_expired, counters.dropped_too_large) == (1, 1)


def test_QoS_0_does_not_wait_where_the_zone_says_so() -> None:
    home = Home(limits=Limits(mqueue_store_qos0=False))
    session = home.opened()
    session.leave(home.router.away4)
    assert session.offer_qos0(b"0\4\0\1ax") == UNWANTED
    assert not session.messages.queue
