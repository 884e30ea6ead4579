"""Sessions found again, left behind, expired; wills that wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flockmq import bounds
from flockmq.bounds import ENDED_FILTERS_A_STEP, MATCHED_AGAIN_MAX
from flockmq.clock import SYSTEM
from flockmq.durable.session import DurableSession
from flockmq.durable.session_table import SessionEnds, SessionTable
from flockmq.mqtt.message import NEVER_EXPIRES, Will, publication
from flockmq.mqtt.reason import Reason
from flockmq.routing.subscriber import Subscription
from flockmq.time_slices import TimeSlices
from unit.broker.durable.session_owner import CLIENT, SessionOwner, add_subscription

START_S = 1000.0
OTHER = bytes(range(16, 32))
"""The identity of another CONNECT."""


class Ends(SessionEnds):
    def __init__(self) -> None:
        self.published: list[bytes] = []
        self.dropped: list[bytes] = []
        self.gone: list[bytes] = []

    def publish(self, will: Will, session: DurableSession) -> None:
        self.published.append(will.message.topic)

    def unrouted(self, session: DurableSession, filters: list[bytes]) -> None:
        self.dropped += filters

    def session_ended(self, session: DurableSession) -> None:
        self.gone.append(session.client_id)


class Table:
    """One client's, and those of others that are named."""

    def __init__(self) -> None:
        self.owner = SessionOwner(now_s=START_S)
        self.ends = Ends()
        self.soon: list[Callable[[], None]] = []
        """What is to be called in the next iteration."""
        self.sessions = SessionTable(self.owner.router, self.ends, TimeSlices(self.soon.append, SYSTEM))

    def open(
        self,
        *,
        clean: bool = False,
        expiry_s: int = 100,
        will: Will | None = None,
        identity: bytes = OTHER,
        client_id: bytes = CLIENT,
    ) -> tuple[DurableSession, bool]:
        fresh = self.owner.fresh(5, expiry_s=expiry_s, will=will, identity=identity, client_id=client_id)
        opened, present = self.sessions.open(fresh, clean)
        opened.send_again()
        self.owner.settle()
        return opened, present

    def leave(self, session: DurableSession, *, after_s: float = 0.0) -> bool:
        self.owner.router.host.now_s = START_S + after_s
        lasts = self.sessions.leave(session, session.meta.will, self.owner.router.host.now_s)
        self.owner.settle()
        return lasts

    def at(self, after_s: float) -> None:
        self.owner.router.host.now_s = START_S + after_s
        self.sessions.tick(self.owner.router.host.now_s)


@pytest.fixture
def table() -> Table:
    return Table()


def will(delay_s: int) -> Will:
    return Will(publication(5, 1, False, b"will", b"gone", b""), delay_s)


def subscribed(table: Table, session: DurableSession, *filters: bytes) -> None:
    for filter in filters:
        subscription = Subscription(session, filter, 1)
        add_subscription(session, subscription)
        table.owner.router.add(subscription)
        table.owner.router.began(subscription)


def test_who_comes_back_has_the_session_that_is_here(table: Table) -> None:
    session, present = table.open()
    assert not present
    table.leave(session)
    assert list(table.sessions.away) == [CLIENT]
    assert table.open() == (session, True)
    assert not table.sessions.away
    assert table.owner.router.counters.sessions_resumed == 1


def test_MQTT_3_1_2_4_a_clean_start_ends_the_older_session(table: Table) -> None:
    session, _ = table.open()
    subscribed(table, session, b"a")
    table.leave(session)
    fresh, present = table.open(clean=True)
    assert (present, table.ends.dropped, table.ends.gone) == (False, [b"a"], [CLIENT])
    assert table.sessions.by_id == {CLIENT: fresh}


def test_a_session_expires(table: Table) -> None:
    session, _ = table.open(expiry_s=100)
    subscribed(table, session, b"a")
    table.leave(session)
    table.at(99)
    assert table.sessions.away
    table.at(100)
    assert not table.sessions.by_id
    assert table.ends.dropped == [b"a"]
    counters = table.owner.router.counters
    assert (counters.sessions_away, counters.sessions_expired) == (0, 1)


def test_who_comes_back_too_late_finds_no_session_whether_a_tick_came_to_it_or_not(table: Table) -> None:
    session, _ = table.open(expiry_s=100)
    table.leave(session)
    table.owner.router.host.now_s = START_S + 100
    _, present = table.open()
    assert not present


def test_a_session_that_never_expires_stays(table: Table) -> None:
    session, _ = table.open(expiry_s=NEVER_EXPIRES)
    table.leave(session)
    table.at(1e12)
    assert list(table.sessions.away) == [CLIENT]


def test_a_session_whose_client_wants_it_no_more_ends_with_its_connection(table: Table) -> None:
    session, _ = table.open()
    session.meta.expiry_s = 0
    assert not table.leave(session)
    assert not table.sessions.by_id


def test_of_filters_that_are_given_up_those_are_told_that_nobody_wants(table: Table) -> None:
    session, _ = table.open()
    other, _ = table.open(client_id=b"other")
    subscribed(table, session, b"a", b"b")
    subscribed(table, other, b"b")
    reasons = table.sessions.unsubscribe(session, [b"a", b"b", b"c"])
    assert reasons == [Reason.SUCCESS, Reason.SUCCESS, Reason.NO_SUBSCRIPTION_EXISTED]
    assert table.ends.dropped == [b"a"]


# Wills.


def test_a_will_without_delay_is_published_at_once(table: Table) -> None:
    session, _ = table.open(will=will(0))
    table.leave(session)
    assert table.ends.published == [b"will"]


def test_MQTT_3_1_3_9_a_delayed_will_waits_and_is_forgotten_when_the_client_is_back(table: Table) -> None:
    session, _ = table.open(will=will(10))
    table.leave(session)
    table.at(9)
    assert table.ends.published == []
    table.open(will=will(10))
    table.at(50)
    assert table.ends.published == []
    table.leave(session, after_s=50)
    table.at(60)
    assert table.ends.published == [b"will"]
    table.at(149)
    assert table.ends.published == [b"will"]
    assert session.meta.will is None


def test_a_delayed_will_is_published_when_its_session_ends_first(table: Table) -> None:
    session, _ = table.open(expiry_s=5, will=will(10))
    table.leave(session)
    table.at(5)
    assert table.ends.published == [b"will"]


def test_a_delayed_will_is_published_when_a_clean_start_ends_its_session(table: Table) -> None:
    session, _ = table.open(will=will(10))
    table.leave(session)
    table.open(clean=True)
    assert table.ends.published == [b"will"]


# Going on elsewhere.


def test_a_session_that_goes_on_elsewhere_leaves_nothing_here(table: Table) -> None:
    session, _ = table.open(will=will(10))
    subscribed(table, session, b"a", b"b")
    table.leave(session)
    table.sessions.depart(session)
    assert (table.ends.dropped, table.ends.published, table.ends.gone) == ([], [], [])
    counters = table.owner.router.counters
    assert (counters.subscriptions, counters.sessions_away) == (0, 0)
    assert not table.owner.router.has_local(b"a")
    table.at(1000.0)
    assert table.ends.published == []
    assert not table.open()[1]


def test_a_session_that_ran_elsewhere_waits_for_its_client_from_when_it_left(table: Table) -> None:
    former, _ = table.open(will=will(10))
    subscribed(table, former, b"a")
    table.leave(former)
    table.sessions.depart(former)
    table.owner.settle()
    session = table.owner.restored()
    table.sessions.restore(session, session.meta.will, START_S + 50.0)
    table.owner.send(session, "x")
    assert session.messages.queue
    table.at(59.9)
    assert table.ends.published == []
    table.at(60.0)
    assert table.ends.published == [b"will"]
    table.at(149.9)
    assert table.ends.gone == []
    table.at(150.0)
    assert table.ends.gone == [CLIENT]


def test_a_session_that_ended_keeps_no_messages_however_long_it_is_remembered(table: Table) -> None:
    session, _ = table.open()
    subscribed(table, session, b"a")
    table.leave(session)
    table.owner.send(session, "x")
    messages = session.messages
    assert messages.queue
    table.open(clean=True)
    assert (messages.queue, messages.queue_bytes, messages.inflight, len(session.subscriptions)) == (None, 0, {}, 0)


def test_beyond_the_bound_the_session_that_would_expire_first_ends(table: Table) -> None:
    slices = TimeSlices(table.soon.append, SYSTEM)
    sessions = table.sessions = SessionTable(table.owner.router, table.ends, slices, away_max=2)
    for client_id, expiry_s in ((b"back", 10), (b"never", NEVER_EXPIRES), (b"soon", 50), (b"later", 100)):
        session, _ = table.open(client_id=client_id, expiry_s=expiry_s)
        table.leave(session)
        if client_id == b"back":
            table.open(client_id=client_id, expiry_s=expiry_s)
    assert list(sessions.away) == [b"never", b"later"]
    assert table.ends.gone == [b"soon"]
    for client_id in (b"never too", b"never as well"):
        table.leave(table.open(client_id=client_id, expiry_s=NEVER_EXPIRES)[0])
    assert list(sessions.away) == [b"never too", b"never as well"], "later first, which expires, then the oldest"


def test_a_session_that_expires_with_many_filters_gets_nothing_more_and_they_go_in_slices(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)  # one step an iteration
    session, _ = table.open(expiry_s=10)
    many = 2 * ENDED_FILTERS_A_STEP
    for at in range(many):
        subscribed(table, session, b"many/%d" % at)
    owner = table.owner.router
    table.leave(session)
    assert owner.route(b"many/7").fanout.deliveries
    table.at(11)
    assert table.ends.gone == [CLIENT]
    assert not owner.route(b"many/7").fanout.deliveries
    for gone in (0, ENDED_FILTERS_A_STEP, many):
        assert (owner.counters.subscriptions, len(table.ends.dropped)) == (many - gone, gone)
        for call in table.soon[-1:]:
            table.soon.clear()
            call()
    assert len(owner.local) == 0


def test_who_is_back_meanwhile_keeps_its_exclusive_filters(table: Table) -> None:
    session, _ = table.open()
    many = ENDED_FILTERS_A_STEP
    for at in range(many):
        subscribed(table, session, b"$exclusive/%d" % at)
    table.leave(session)
    back, present = table.open(clean=True)
    assert not present
    subscribed(table, back, b"$exclusive/7")
    for call in table.soon:
        call()
    assert table.ends.dropped == [b"%d" % at for at in range(many)], "of their routes alone, not of its claims"
    assert table.owner.router.counters.subscriptions == 1


@pytest.mark.parametrize("filters", [1, MATCHED_AGAIN_MAX + 1])
def test_what_was_matched_before_a_client_left_is_matched_again(table: Table, filters: int) -> None:
    session, _ = table.open()
    for at in range(filters):
        subscribed(table, session, b"%d" % at)
    assert not table.owner.router.route(b"0").fanout.special
    table.leave(session)
    assert table.owner.router.route(b"0").fanout.special, "it is offline: messages are queued for it"
