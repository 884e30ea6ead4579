"""When a durable session sends what to its client, and when an acknowledgement is settled."""

from __future__ import annotations

import pytest

from flockmq.durable.message_queue import PACKET_IDS
from flockmq.durable.session_fields import sequence_field
from flockmq.session.remote_session import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREC_REFUSED,
    pair,
)
from unit.broker.durable.session_owner import (
    QOS1,
    QOS2,
    SessionOwner,
    back,
    heard,
    messages_on,
    to_proxy,
)


def test_a_message_is_sent_when_it_is_durable(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session_owner.send(session, "x")
    session_owner.commit_state.request_barriers()
    assert heard(session) == []
    session_owner.disk.commit()
    assert heard(session) == [(QOS1, 1, b"x")]
    assert messages_on(session_owner.disk) == [sequence_field(1)]


def test_one_barrier_stands_behind_all_that_a_turn_put(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session_owner.send(session, "1")
    session_owner.send(session, "2")
    session_owner.commit_state.request_barriers()
    session_owner.send(session, "3")
    session_owner.commit_state.request_barriers()
    assert len([op for op in session_owner.disk.waiting if callable(op)]) == 2
    session_owner.disk.commit(4)
    assert [payload for _, _, payload in heard(session)] == [b"1", b"2"]
    session_owner.disk.commit()
    assert [payload for _, _, payload in heard(session)] == [b"3"]


def test_an_acknowledgement_is_settled_when_it_is_durable_and_makes_room_at_once(session_owner: SessionOwner) -> None:
    session = session_owner.opened(window=1)
    session_owner.send(session, "1")
    session_owner.send(session, "2")
    session_owner.settle()
    assert heard(session) == [(QOS1, 1, b"1")]
    session.reported(pair(PUBACK, 1))
    assert heard(session) == [(QOS1, 2, b"2")]
    assert to_proxy(session).told() == []
    session_owner.settle()
    assert to_proxy(session).told() == [(PUBACK, 1)]
    assert messages_on(session_owner.disk) == [sequence_field(2)]


def test_PUBREL_is_sent_when_it_is_durable_that_PUBREC_came(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session_owner.send(session, "x", 2)
    session_owner.settle()
    assert heard(session) == [(QOS2, 1, b"x")]
    session.reported(pair(PUBREC, 1) + pair(PUBREC, 1))
    session_owner.commit_state.request_barriers()
    assert heard(session) == []
    session_owner.disk.commit()
    assert heard(session) == [(0x62, 1, b"")]
    session.reported(pair(PUBCOMP, 1))
    session_owner.settle()
    assert to_proxy(session).told() == [(PUBCOMP, 1)]
    assert messages_on(session_owner.disk) == []


def test_MQTT_4_6_0_4_PUBRELs_come_in_the_order_of_the_PUBRECs(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    for payload in "123":
        session_owner.send(session, payload, 2)
    session_owner.settle()
    heard(session)
    session.reported(pair(PUBREC, 2) + pair(PUBREC, 3) + pair(PUBREC, 1))
    session_owner.settle()
    assert [packet_id for _, packet_id, _ in heard(session)] == [2, 3, 1]
    back(session_owner, session)
    assert [(first, packet_id) for first, packet_id, _ in heard(session)] == [(0x62, 2), (0x62, 3), (0x62, 1)]


def test_a_PUBREC_that_refuses_ends_the_exchange(session_owner: SessionOwner) -> None:
    session = session_owner.opened(window=1)
    session_owner.send(session, "1", 2)
    session_owner.send(session, "2", 2)
    session_owner.settle()
    session.reported(pair(PUBREC_REFUSED, 1))
    session_owner.settle()
    assert heard(session) == [(QOS2, 1, b"1"), (QOS2, 2, b"2")]
    assert to_proxy(session).told() == [(PUBREC_REFUSED, 1)]


def test_what_is_unknown_is_settled_so_that_the_session_proxy_forgets_it(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session.reported(pair(PUBACK, 5) + pair(PUBCOMP, 6) + pair(PUBREC_REFUSED, 7) + pair(PUBREC, 8))
    session_owner.settle()
    assert to_proxy(session).told() == [(PUBACK, 5), (PUBCOMP, 6), (PUBREC_REFUSED, 7)]
    assert heard(session) == [(0x62, 8, b"")]


def test_a_packet_id_that_is_still_in_use_blocks_what_would_get_it(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session_owner.send(session, "old")
    session_owner.settle()
    session.messages.last = session.outgoing.committed = PACKET_IDS - 1
    session.meta.sequences = PACKET_IDS + 100
    for payload in ("last id", "again 1", "2"):
        session_owner.send(session, payload)
    session_owner.settle()
    assert [(packet_id, payload) for _, packet_id, payload in heard(session)] == [(1, b"old"), (PACKET_IDS, b"last id")]
    session.reported(pair(PUBACK, 1))
    assert heard(session) == [], "its session proxy would take it for a repeat"
    session_owner.settle()
    assert [(packet_id, payload) for _, packet_id, payload in heard(session)] == [(1, b"again 1"), (2, b"2")]


@pytest.mark.parametrize("ends", [PUBACK, PUBCOMP, PUBREC_REFUSED])
def test_what_a_session_proxy_reports_of_another_owner_blocks_its_packet_id_until_it_is_settled(
    session_owner: SessionOwner, ends: int
) -> None:
    session = session_owner.opened()
    session.reported(pair(ends, 1))
    session.outgoing.committed = 1
    session_owner.send(session, "1")
    session.outgoing.send_waiting()
    assert heard(session) == []
    session_owner.settle()
    assert heard(session) == [(QOS1, 1, b"1")]


def test_a_repeated_PUBREC_is_answered_again_once_it_is_durable(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session_owner.send(session, "x", 2)
    session_owner.settle()
    heard(session)
    session.reported(pair(PUBREC, 1))
    assert heard(session) == []
    session_owner.settle()
    assert heard(session) == [(0x62, 1, b"")]
    session.reported(pair(PUBREC, 1))
    assert heard(session) == [(0x62, 1, b"")]
