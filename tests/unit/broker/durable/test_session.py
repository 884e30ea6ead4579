"""A durable session begins, ends, or moves to another owner."""

from __future__ import annotations

import pytest

from flockmq.durable.session_fields import sequence_field
from flockmq.session.limits import Limits
from flockmq.session.remote_session import (
    PUBACK,
    pair,
)
from unit.broker.durable.homes import (
    QOS1,
    Home,
    elsewhere,
    heard,
    messages_on,
    to_proxy,
)


@pytest.fixture
def home() -> Home:
    return Home(limits=Limits(max_inflight=3, max_mqueue_len=5))


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


def test_members_of_a_shared_subscription_get_what_a_session_that_ended_left(home: Home) -> None:
    session = home.opened(window=1)
    for payload in "12":
        home.send(session, payload, share=b"$share/g/t")
    home.settle()
    other, session = elsewhere(home)
    other.router.shared.redispatch(session.messages.unacknowledged_shared())
    assert other.router.counters.dropped_no_member == 2
