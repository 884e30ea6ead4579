"""What is stored of a durable session beside its messages, and what the next owner makes of that."""

from __future__ import annotations

import pytest

from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import META, Meta, decode_meta
from flockmq.mqtt.message import Will, publication
from flockmq.routing.subscriber import Subscription
from flockmq.session.remote_session import (
    PUBREC,
    pair,
)
from unit.broker.durable.session_owner import (
    CLIENT,
    IDENTITY,
    SessionOwner,
    add_subscription,
    elsewhere,
    messages_on,
)


def getting_retained(session_owner: SessionOwner, *given: str) -> DurableSession:
    """A session that is sent what is retained for `a/#`, and was given the messages of these topics."""
    session = session_owner.opened()
    subscription = Subscription(session, b"a/#", 2, False, False, b"")
    add_subscription(session, subscription)
    session.await_retained(subscription)
    session_owner.settle()
    for topic in given:
        session.record.begin_retained(b"a/#", topic.encode(), session.usage)
        session_owner.send(session, topic)
        session.record.end_retained()
    return session


@pytest.mark.parametrize("durable", range(4))
def test_how_far_what_is_retained_was_given_is_durable_with_each_message(
    session_owner: SessionOwner, durable: int
) -> None:
    getting_retained(session_owner, "a/1", "a/2", "a/3")
    ops = [op for op in session_owner.disk.waiting if not callable(op)]
    session_owner.disk.waiting[:] = [op for op in ops if b"m" not in op[1]]
    session_owner.disk.commit(durable)
    later = session_owner.restored()
    assert len(messages_on(session_owner.disk)) == durable
    assert later.record.retained_up_to(b"a/#") == [b"", b"a/1", b"a/2", b"a/3"][durable]


def test_a_message_beside_what_is_retained_says_nothing_of_it(session_owner: SessionOwner) -> None:
    session = getting_retained(session_owner, "a/1")
    session_owner.send(session, "live")
    session_owner.settle()
    assert session_owner.restored().record.retained_up_to(b"a/#") == b"a/1"


def test_how_far_it_was_given_is_written_again(session_owner: SessionOwner) -> None:
    session = getting_retained(session_owner, "a/1")
    session_owner.settle()
    session_owner.disk.sessions.clear()
    session.write_again()
    session_owner.settle()
    assert session_owner.restored().record.retained_up_to(b"a/#") == b"a/1"


@pytest.mark.parametrize("how", ["all given", "subscribed anew", "unsubscribed"])
def test_nothing_is_noted_any_more_when_it_is_not_awaited_or_is_awaited_anew(
    session_owner: SessionOwner, how: str
) -> None:
    session = getting_retained(session_owner, "a/1")
    subscription = session.subscriptions.find(b"a/#")
    assert subscription is not None
    if how == "all given":
        session.retained_sent(subscription)
    elif how == "subscribed anew":
        session.await_retained(subscription)
    else:
        session.remove_subscription(b"a/#")
    session_owner.settle()
    assert session.record.retained_up_to(b"a/#") == session_owner.restored().record.retained_up_to(b"a/#") == b""
    assert [field for field in session_owner.disk.fields() if field[:1] == b"o"] == []


def test_what_CONNECT_said_and_the_subscriptions_are_known_to_the_next_owner(session_owner: SessionOwner) -> None:
    will = Will(publication(5, 1, True, b"will", b"gone", b"\x01\x01", 30), 7)
    session = session_owner.opened(5, will=will)
    add_subscription(session, Subscription(session, b"a/+", 2, True, True, b"\x0b\x07"))
    add_subscription(session, Subscription(session, b"b", 1))
    add_subscription(session, Subscription(session, b"c", 0))
    session.remove_subscription(b"b")
    origin = session.will_origin()
    session_owner.settle()
    other, session = elsewhere(session_owner)
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


def test_why_a_will_is_allowed_is_known_to_the_next_owner_and_of_that_will_alone(session_owner: SessionOwner) -> None:
    message = publication(4, 0, False, b"will", b"gone", b"")
    session_owner.opened(will=Will(message, 7, b"why"))
    session_owner.settle()
    other, session = elsewhere(session_owner)
    assert session.meta.will is not None
    assert session.meta.will.authorization == b"why"
    session.write_again()
    other.settle()
    again, session = elsewhere(other)
    assert session.meta.will is not None
    assert session.meta.will.authorization == b"why"
    session.meta.will_source = b"another!"  # an owner of an earlier release had a CONNECT meanwhile
    session.writer.put(session.client_id, META, session.meta.encode())
    again.settle()
    _, session = elsewhere(again)
    assert session.meta.will is not None
    assert session.meta.will.authorization == b""


def test_a_session_knows_since_when_its_client_is_away_and_which_will_still_waits(session_owner: SessionOwner) -> None:
    will = Will(publication(4, 0, False, b"will", b"gone", b""), 7)
    session = session_owner.opened(will=will)
    session.leave(session_owner.router.away4, will)
    session_owner.settle()
    session_owner.router.host.now_s += 5
    other, session = elsewhere(session_owner)
    assert other.commit_state.monotonic_s(session.meta.left_ms) == pytest.approx(
        session_owner.router.host.now_s - 5, abs=0.01
    )
    assert session.meta.will is not None
    session.will_published()
    other.settle()
    assert elsewhere(other)[1].meta.will is None


def test_what_the_store_lost_is_written_again(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    add_subscription(session, Subscription(session, b"a", 1))
    for payload, qos in (("1", 1), ("2", 2), ("3", 1), ("4", 2)):
        session_owner.send(session, payload, qos)
    session.origin_for(5)
    session_owner.settle()
    session.reported(pair(PUBREC, 2))
    session_owner.settle()
    before = dict(session_owner.disk.fields())
    assert len(before) == 7
    session_owner.disk.sessions.clear()
    session_owner.disk.sessions[CLIENT] = {b"q" + bytes(8): b"from before"}
    session.write_again()
    session_owner.settle()
    assert {**session_owner.disk.fields(), b"m": b""} == {**before, b"m": b""}


def test_what_no_owner_of_ours_wrote_is_refused() -> None:
    with pytest.raises(ValueError, match="meta field of 0 bytes"):
        SessionOwner().restored()
    good = Meta(IDENTITY, 1, 4, None).encode()
    with pytest.raises(ValueError, match="form"):
        decode_meta(b"\x09" + good[1:])
