"""How many clients a node that drains sends away, and when."""

from __future__ import annotations

import pytest

from flockmq.bounds import CONNECT_WAIT_MAX_S, EVICTION_BEGINS_S, EVICTION_JOINED_MAX_S, EVICTION_TICK_S
from flockmq.management.view import Member
from flockmq.node.eviction_pace import Draining, EvictionPace, Others, others

BEGUN_S = 1e6
TICKS_PER_S = round(1 / EVICTION_TICK_S)


def sent_each_s(settings: Draining, clients: int, seconds: int, share: float = 1.0) -> list[int]:
    """How many are sent away in each second."""
    pace, left = EvictionPace(settings, BEGUN_S), clients
    sent = [0] * seconds
    for tick in range(seconds * TICKS_PER_S):
        number = pace.due(BEGUN_S + tick * EVICTION_TICK_S, left, share)
        assert 0 <= number <= left
        left -= number
        sent[tick // TICKS_PER_S] += number
    return sent


def test_none_is_sent_before_others_know_then_so_many_a_second() -> None:
    assert sent_each_s(Draining(60.0, 500.0), 1200, 5) == [0, pytest.approx(450, abs=1), pytest.approx(500, abs=1),
                                                          pytest.approx(250, abs=2), 0]  # fmt: skip


def test_nodes_that_drain_together_share_the_rate() -> None:
    sent = sent_each_s(Draining(60.0, 500.0), 1_000, 12, share=1 / 5)
    assert sum(sent) == 1_000
    assert max(sent) <= 101


def test_a_slow_rate_sends_one_now_and_then() -> None:
    assert sum(sent_each_s(Draining(600.0, 1.0), 100, 31)) == pytest.approx(30, abs=1)


@pytest.mark.parametrize(("timeout_s", "clients"), [(10.0, 30_000), (1.0, 500), (0.2, 3), (EVICTION_TICK_S, 7)])
def test_all_are_away_when_the_time_is_over(timeout_s: float, clients: int) -> None:
    settings = Draining(timeout_s, 10.0)
    sent = sent_each_s(settings, clients, 12)
    assert sum(sent) == clients
    pace = EvictionPace(settings, BEGUN_S)
    assert pace.due(BEGUN_S + timeout_s - EVICTION_TICK_S + 1e-6, clients, 1.0) == clients
    assert (pace.is_over(BEGUN_S), pace.is_over(BEGUN_S + timeout_s)) == (False, True)


def test_what_the_time_asks_for_is_spread_over_it() -> None:
    sent = sent_each_s(Draining(11.0, 10.0), 10_000, 11)
    assert sent[0] == 0
    assert max(sent[1:]) <= 1.2 * min(sent[1:])


def test_a_node_that_stood_still_makes_good_no_more_than_a_moment() -> None:
    pace = EvictionPace(Draining(600.0, 100.0), BEGUN_S)
    first = pace.due(BEGUN_S + EVICTION_BEGINS_S + 20.0, 10_000, 1.0)
    assert first == 100.0 * EVICTION_JOINED_MAX_S


def test_the_rate_falls_while_clients_wait_elsewhere_and_grows_again() -> None:
    pace = EvictionPace(Draining(600.0, 400.0), BEGUN_S)
    rates = []
    for wait_s in (0.0, 2 * CONNECT_WAIT_MAX_S, 2 * CONNECT_WAIT_MAX_S, *[CONNECT_WAIT_MAX_S] * 9):
        pace.heard(wait_s)
        rates.append(pace.rate)
    assert rates[:3] == [400.0, 200.0, 100.0]
    assert rates[3:] == sorted(rates[3:])
    assert rates[-1] == 400.0


def test_all_are_away_in_time_though_clients_wait_elsewhere() -> None:
    pace, left = EvictionPace(Draining(10.0, 1000.0), BEGUN_S), 5_000
    for tick in range(10 * TICKS_PER_S):
        pace.heard(60.0)
        left -= pace.due(BEGUN_S + tick * EVICTION_TICK_S, left, 1.0)
    assert left == 0


# --- the others -------------------------------------------------------------------------------------------------------


def member(name: str, role: str = "replicant", **said: bool | int | None) -> Member:
    about = {"heard": True, "ready": True, "takes_clients": True} | said
    return Member(name=name, incarnation=f"{name}@1", role=role, version="1", host="h", slots=0, **about)  # type: ignore[arg-type]


ME = member("me", ready=False, draining=True, connections=5)


@pytest.mark.parametrize(
    ("other", "accepts"),
    [
        (member("r"), True),
        (member("r", ready=False), False),
        (member("r", draining=True), False),
        (member("r", heard=False), False),
        (member("r", takes_clients=False), False),
        (member("r", takes_clients=None), True),
        (member("c", "core"), True),
        (member("c", "core", takes_clients=None), False),
        (member("c", "core", takes_clients=False), False),
    ],
)
def test_a_node_accepts_clients_that_is_ready_for_them(other: Member, accepts: bool) -> None:
    assert others([ME, other], "me@1") == Others(accepts, 1.0)


def test_the_slowest_of_those_that_accept_clients_counts() -> None:
    slow, slower = member("slow", connect_wait_ms=700), member("slower", draining=True, connect_wait_ms=900)
    assert others([ME, member("r"), slow, slower], "me@1").connect_wait_s == 0.7


def test_the_rate_is_of_those_that_drain_and_have_clients() -> None:
    draining = [member(name, draining=True, connections=3) for name in "abc"]
    empty = member("empty", draining=True)
    assert others([ME, member("r"), *draining, empty], "me@1") == Others(True, 1 / 4)
