"""What is stored of a durable session beside its messages, and what the next owner makes of that."""

from __future__ import annotations

import pytest

from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import META, Meta, decode_meta
from flockmq.mqtt.message import Will, publication
from flockmq.routing.subscriber import Subscription
from flockmq.session.limits import Limits
from flockmq.session.remote_session import (
    PUBREC,
    pair,
)
from unit.broker.durable.homes import (
    CLIENT,
    IDENTITY,
    Home,
    add_subscription,
    elsewhere,
    messages_on,
)


@pytest.fixture
def home() -> Home:
    return Home(limits=Limits(max_inflight=3, max_mqueue_len=5))


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


def test_what_no_home_of_ours_wrote_is_refused() -> None:
    with pytest.raises(ValueError, match="meta field of 0 bytes"):
        Home().restored()
    good = Meta(IDENTITY, 1, 4, None).encode()
    with pytest.raises(ValueError, match="form"):
        decode_meta(b"\x09" + good[1:])
