"""A durable session whose client doesn't keep up: when its publishers pause, and when the client is cut off."""

from __future__ import annotations

import pytest

from flockmq.bounds import (
    MQUEUE_AHEAD_MAX,
    SINK_CONGESTED_MAX_S,
    SINK_HELD_MAX_S,
)
from flockmq.routing.sink import CONGESTED, FLOWING, LAGGING
from flockmq.session.limits import Limits
from flockmq.session.remote_session import (
    PUBACK,
    PUBREC,
    pair,
)
from unit.broker.durable.homes import (
    Home,
    ToProxy,
    all_read,
    back,
    full,
    lag,
    messages_on,
    to_proxy,
)


@pytest.fixture
def home() -> Home:
    return Home(limits=Limits(max_inflight=3, max_mqueue_len=5))


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


def test_the_way_to_a_front_counts_what_is_not_sent(home: Home) -> None:
    sink = ToProxy(home.router, 4)
    sink.unsendable(0)
    sink.unsendable(10)
    counters = home.router.counters
    assert (counters.dropped_expired, counters.dropped_too_large) == (1, 1)
