"""A durable session begins, ends, or moves to another owner."""

from __future__ import annotations

from flockmq.durable.session_fields import sequence_field
from flockmq.session.remote_session import (
    PUBACK,
    pair,
)
from unit.broker.durable.session_owner import (
    QOS1,
    SessionOwner,
    elsewhere,
    heard,
    messages_on,
    to_proxy,
)


def test_a_session_that_ends_is_dropped_and_what_was_under_way_does_nothing(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    sink = to_proxy(session)
    session_owner.send(session, "1")
    session.reported(pair(PUBACK, 77))
    session_owner.commit_state.request_barriers()
    session_owner.send(session, "2")
    session.erase()
    session_owner.settle()
    assert (sink.packets(), sink.told(), session_owner.disk.sessions) == ([], [], {})


def test_a_session_that_goes_on_elsewhere_stays_on_disk(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    session_owner.send(session, "1")
    session_owner.settle()
    session.abandon()
    session_owner.settle()
    assert messages_on(session_owner.disk) == [sequence_field(1)]


def test_a_journal_that_refuses_silences_the_session(session_owner: SessionOwner) -> None:
    session = session_owner.opened()
    sink = to_proxy(session)
    session_owner.send(session, "1")
    session_owner.commit_state.request_barriers()
    for op in session_owner.disk.waiting:
        if callable(op):
            op(False)
    session_owner.disk.waiting.clear()
    session_owner.send(session, "2")
    session_owner.settle()
    session.erase()
    assert (sink.packets(), session_owner.disk.waiting) == ([], [])


def test_a_clean_start_begins_anew_behind_the_end_of_the_older_session(session_owner: SessionOwner) -> None:
    older = session_owner.opened()
    session_owner.send(older, "1")
    older.erase()
    fresh = session_owner.fresh()
    fresh.opened()
    session_owner.send(fresh, "2")
    session_owner.settle()
    assert heard(fresh) == [(QOS1, 1, b"2")]
    assert messages_on(session_owner.disk) == [sequence_field(1)]
    assert session_owner.restored().messages.kept is not None


def test_members_of_a_shared_subscription_get_what_a_session_that_ended_left(session_owner: SessionOwner) -> None:
    session = session_owner.opened(window=1)
    for payload in "12":
        session_owner.send(session, payload, share=b"$share/g/t")
    session_owner.settle()
    other, session = elsewhere(session_owner)
    other.router.shared.redispatch(session.messages.unacknowledged_shared())
    assert other.router.counters.dropped_no_member == 2
