"""What the client of a durable session publishes at QoS 2: one message id for each."""

from __future__ import annotations

from flockmq.routing.message_id import Origins, number_of, session_source, source_of
from flockmq.session.limits import Limits
from flockmq.session.remote_session import (
    DROPPED,
    PUBREL,
    PUBREL_UNKNOWN,
    pair,
)
from unit.broker.durable.session_owner import IDENTITY, SessionOwner, origin, to_proxy


def test_a_QoS_2_message_has_one_number_until_it_is_released(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    assert [session.origin_for(packet_id) for packet_id in (5, 6, 5)] == [origin(1), origin(2), origin(1)]
    session.reported(pair(PUBREL, 5))
    assert to_proxy(session).told() == []
    session_owner.settle()
    assert to_proxy(session).told() == [(PUBREL, 5)]
    assert session.origin_for(5) == origin(3)
    session.reported(pair(PUBREL, 99) + pair(DROPPED, 6))
    session_owner.settle()
    assert to_proxy(session).told() == [(PUBREL_UNKNOWN, 99), (DROPPED, 6)]
    assert session.origin_for(6) == origin(4)


def test_only_so_many_await_their_PUBREL_and_not_for_ever() -> None:
    session_owner = SessionOwner(limits=Limits(max_awaiting_rel=2, await_rel_timeout=10.0))
    session = session_owner.opened()
    assert [session.origin_for(packet_id) for packet_id in (1, 2, 3)] == [origin(1), origin(2), b""]
    session_owner.router.host.now_s += 11
    assert session.origin_for(3) == origin(3)
    session_owner.settle()
    assert [field for field in session_owner.disk.fields() if field[:1] == b"r"] == [b"r\0\3"]


def test_numbers_and_their_packet_ids_are_known_to_the_next_owner(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session.origin_for(5)
    session.origin_for(6)
    session.reported(pair(PUBREL, 6))
    session_owner.settle()
    session = SessionOwner(session_owner.disk).restored()
    assert session.origin_for(5) == origin(1)
    later = session.origin_for(7)
    assert source_of(later) == IDENTITY[:8]
    assert number_of(later) > 2


def test_what_is_published_before_what_comes_again_on_another_connection_makes_no_repeat_of_that(
    session_owner: SessionOwner,
) -> None:
    session = session_owner.opened()
    again = session.origin_for(5)
    session.resume(session_owner.fresh(identity=IDENTITY[:8] + b"CONNECT2"))
    first = session.origin_for(6)
    assert source_of(first) == session_source(b"CONNECT2")
    session_owner.settle()
    session = SessionOwner(session_owner.disk).restored()
    assert [session.origin_for(packet_id) for packet_id in (6, 5)] == [first, again]
    seen = Origins()
    assert [seen.is_new(origin) for origin in (first, again, again)] == [True, True, False]
    assert source_of(session.origin_for(7)) == source_of(first)


def test_what_is_published_on_another_connection_makes_no_repeat_of_what_is_on_its_way(
    session_owner: SessionOwner,
) -> None:
    """Its publisher knows that it was accepted, and it may come to other nodes last."""
    session = session_owner.opened()
    late = session.origin_for(5)
    session.reported(pair(PUBREL, 5))
    session.resume(session_owner.fresh(identity=IDENTITY[:8] + b"CONNECT2"))
    first = session.origin_for(5)
    seen = Origins()
    assert [seen.is_new(origin) for origin in (first, late)] == [True, True]
