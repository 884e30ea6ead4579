"""A durable session whose client doesn't keep up: when its publishers pause, and when the client is cut off."""

from __future__ import annotations

import pytest

from flockmq.bounds import (
    MQUEUE_AHEAD_MAX,
    SINK_CONGESTED_MAX_S,
    SINK_HELD_MAX_S,
)
from flockmq.routing.sink import CONGESTED, FLOWING, LAGGING
from flockmq.session.remote_session import (
    PUBACK,
    PUBREC,
    pair,
)
from unit.broker.durable.session_owner import (
    SessionOwner,
    ToProxy,
    all_read,
    back,
    full,
    lag,
    messages_on,
    to_proxy,
)


def test_a_client_that_lags_is_cut_off_when_it_has_no_room(session_owner: SessionOwner) -> None:
    session = session_owner.opened(window=3)
    to_proxy(session).overflown = lambda: session.leave(session_owner.router.away4)
    for number in range(9):
        if number == 8:
            lag(session_owner, session)
        session_owner.send(session, str(number))
        session_owner.settle()
        assert session.is_connected() == (number != 8)
    assert session_owner.router.counters.dropped_queue_full == 1  # as if it had been away before


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_client_that_reads_gets_all_that_comes_before_its_publishers_pause(
    session_owner: SessionOwner, is_durable: bool
) -> None:
    """So does one that the store holds up: what waited for that comes at once."""
    session = session_owner.opened(window=3)
    to_proxy(session).overflown = lambda: pytest.fail("it does nothing but read")
    sent = [b"%d" % number for number in range(40)]
    for payload in sent:
        session_owner.send(session, payload.decode())
        if is_durable:
            session_owner.settle()
    session_owner.router.host.now_s += SINK_CONGESTED_MAX_S / 2 if is_durable else 60.0
    to_proxy(session).check_progress(session.outgoing.is_held_up())
    session_owner.send(session, "last")
    session_owner.settle()
    assert all_read(session_owner, session) == [*sent, b"last"]
    assert session_owner.router.counters.dropped_queue_full == 0


def test_what_waits_for_a_client_that_reads_is_bounded(session_owner: SessionOwner) -> None:
    session = session_owner.opened(window=3)
    to_proxy(session).overflown = lambda: session.leave(session_owner.router.away4)
    for number in range(5 + MQUEUE_AHEAD_MAX):
        session_owner.send(session, str(number))
    assert session.is_connected()
    session_owner.send(session, "one more")
    assert not session.is_connected()


def test_of_what_is_beyond_the_queue_of_a_client_that_goes_the_oldest_goes(session_owner: SessionOwner) -> None:
    session = session_owner.opened(window=3)
    for number in range(20):
        session_owner.send(session, str(number))
    session_owner.settle()
    session.leave(session_owner.router.away4)
    session_owner.settle()
    assert (session.messages.waiting(), len(messages_on(session_owner.disk))) == (5, 8)
    assert session_owner.router.counters.dropped_queue_full == 12
    back(session_owner, session, window=3)
    assert all_read(session_owner, session) == [b"0", b"1", b"2", b"15", b"16", b"17", b"18", b"19"]


def test_publishers_pause_while_more_than_half_of_the_queue_waits(session_owner: SessionOwner) -> None:
    session = session_owner.opened(window=1)
    for number in range(3):
        session_owner.send(session, str(number))
        session_owner.settle()
    assert to_proxy(session).flows == []
    session_owner.send(session, "3")
    assert to_proxy(session).flows == [CONGESTED]
    session_owner.settle()
    session.reported(pair(PUBACK, 1))
    assert to_proxy(session).flows == [CONGESTED, FLOWING]


def test_publishers_go_on_when_a_client_acknowledges_nothing_or_too_little(session_owner: SessionOwner) -> None:
    for acknowledges, after_s in ((False, SINK_CONGESTED_MAX_S), (True, SINK_HELD_MAX_S)):
        session = session_owner.opened(window=1)
        for number in range(5):
            session_owner.send(session, str(number))
        session_owner.settle()
        proxy, began_s = to_proxy(session), session_owner.router.host.now_s
        while proxy.flow == CONGESTED:
            session_owner.router.host.now_s += 0.25
            if acknowledges:
                proxy.progressed(True)
            proxy.check_progress(session.outgoing.is_held_up())
        assert proxy.flow == LAGGING
        assert session_owner.router.host.now_s - began_s == pytest.approx(after_s, abs=0.5)
        session.reported(pair(PUBACK, 1) + pair(PUBACK, 2))
        session_owner.settle()
        session.reported(pair(PUBACK, 3))
        assert proxy.flow == FLOWING


def test_publishers_wait_as_long_as_it_is_the_store_that_must_go_on(session_owner: SessionOwner) -> None:
    session = session_owner.opened(window=1)
    for number in range(4):
        session_owner.send(session, str(number))
    session_owner.commit_state.request_barriers()
    proxy = to_proxy(session)
    session_owner.router.host.now_s += 60.0
    proxy.check_progress(session.outgoing.is_held_up())
    assert proxy.flow == CONGESTED, "nothing is durable, so nothing was sent"
    session_owner.settle()
    session_owner.router.host.now_s += SINK_CONGESTED_MAX_S + 0.1
    proxy.check_progress(session.outgoing.is_held_up())
    assert proxy.flow == LAGGING, "what was sent is the client's to acknowledge"


def test_publishers_wait_for_PUBREL_to_be_durable(session_owner: SessionOwner) -> None:
    session = session_owner.opened(window=1)
    for number in range(5):
        session_owner.send(session, str(number), 2)
    session_owner.settle()
    assert not session.outgoing.is_held_up()
    session.reported(pair(PUBREC, 1))
    assert session.outgoing.is_held_up()
    session_owner.settle()
    assert not session.outgoing.is_held_up()


def test_publishers_pause_for_a_client_that_comes_back_to_a_full_queue(session_owner: SessionOwner) -> None:
    session = full(session_owner)
    back(session_owner, session, window=1)
    session_owner.send(session, "more")
    assert to_proxy(session).flow == CONGESTED


def test_the_way_to_a_session_proxy_counts_what_is_not_sent(session_owner: SessionOwner) -> None:
    sink = ToProxy(session_owner.router, 4)
    sink.unsendable(0)
    sink.unsendable(10)
    counters = session_owner.router.counters
    assert (counters.dropped_expired, counters.dropped_too_large) == (1, 1)
