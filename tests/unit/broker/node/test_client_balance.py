"""How many clients a node sends to others because it has more than its share, and when."""

from __future__ import annotations

from typing import Final

import pytest

from flockmq.bounds import REBALANCE_SETTLED_S, REBALANCE_TRIES
from flockmq.management.rebalance_rows import AskedRebalance, AskedState
from flockmq.management.view import Member
from flockmq.node.client_balance import NONE, AskedBalance, Balancing, ClientBalance, Excess

SETTINGS: Final = Balancing(relative=1.1, absolute=10, wait_s=30.0)
ME: Final = "r1@1"


def member(
    number: int,
    connections: int,
    *,
    draining: bool = False,
    ready: bool = True,
    heard: bool = True,
    rebalancing: bool = False,
) -> Member:
    return Member(
        name=f"r{number}",
        incarnation=f"r{number}@1",
        role="replicant",
        version="1",
        host="h",
        slots=0,
        heard=heard,
        ready=ready,
        draining=draining,
        connections=connections,
        rebalancing=rebalancing,
    )


def looks(
    balance: ClientBalance | AskedBalance, clients: int, *others: int, since_s: float = 0.0, until_s: float = 60.0
) -> Excess:
    """The last of looks every two seconds."""
    excess = NONE
    now_s = since_s
    while now_s <= until_s:
        excess = balance.look(now_s, [member(number, count) for number, count in enumerate(others, 2)], ME, clients)
        now_s += 2.0
    return excess


def test_it_waits_and_then_sends_what_is_beyond_the_mean() -> None:
    balance = ClientBalance(SETTINGS)
    assert looks(balance, 300, 0, until_s=28.0) == NONE
    assert looks(balance, 300, 0, since_s=30.0, until_s=32.0) == Excess(150, 1.0)


def test_it_goes_on_to_the_mean_and_begins_no_sooner_than_before() -> None:
    balance = ClientBalance(SETTINGS)
    assert looks(balance, 300, 0).clients == 150
    assert looks(balance, 155, 145, since_s=62.0, until_s=62.0).clients == 5, "below the thresholds, but above the mean"
    assert looks(balance, 150, 150, since_s=64.0, until_s=64.0) == NONE
    assert looks(balance, 155, 145, since_s=66.0, until_s=200.0) == NONE
    assert looks(balance, 300, 0, since_s=202.0, until_s=228.0) == NONE


@pytest.mark.parametrize("balance", [ClientBalance(SETTINGS), AskedBalance("ops", SETTINGS, 0.0)])
def test_who_is_on_its_way_to_another_node_still_counts(balance: ClientBalance | AskedBalance) -> None:
    assert looks(balance, 300, 0).clients == 150
    balance.sent(100)
    assert looks(balance, 200, 40, since_s=62.0, until_s=62.0).clients == 50, "60 are on their way"
    balance.sent(50)
    assert looks(balance, 150, 60, since_s=64.0, until_s=64.0) == NONE


@pytest.mark.parametrize(
    ("clients", "others"), [(109, (101,)), (1090, (1010,)), (10, (0,)), (100, (100, 100)), (0, (50,))]
)
def test_small_differences_are_left(clients: int, others: tuple[int, ...]) -> None:
    assert looks(ClientBalance(SETTINGS), clients, *others) == NONE


def test_donors_share_the_rate() -> None:
    assert looks(ClientBalance(SETTINGS), 100, 100, 100, 0) == Excess(25, 1 / 3)


def test_a_node_that_comes_or_goes_makes_it_wait_anew() -> None:
    balance = ClientBalance(SETTINGS)
    assert looks(balance, 300, 0).clients == 150
    assert looks(balance, 300, 0, 0, since_s=62.0, until_s=90.0) == NONE
    assert looks(balance, 300, 0, 0, since_s=92.0, until_s=94.0).clients == 200
    assert looks(balance, 300, 0, since_s=96.0, until_s=96.0) == NONE


@pytest.mark.parametrize("state", [{"draining": True}, {"ready": False}, {"heard": False}])
def test_nobody_is_sent_to_nodes_that_take_no_clients(state: dict[str, bool]) -> None:
    balance = ClientBalance(SETTINGS)
    for now_s in range(0, 100, 2):
        assert balance.look(now_s, [member(2, 0, **state)], ME, 1000) == NONE


def test_its_own_row_counts_once_as_it_is_now() -> None:
    balance = ClientBalance(SETTINGS)
    members = [member(1, 7), member(2, 0)]
    excess = [balance.look(now_s, members, ME, 100) for now_s in range(0, 40, 2)]
    assert excess[-1].clients == 50


@pytest.mark.parametrize("away_s", [0, 6])
def test_clients_that_always_come_back_are_sent_away_ever_more_seldom(away_s: int) -> None:
    """`away_s`: how long a client takes to come back to this node."""
    balance, sent = ClientBalance(SETTINGS), dict[int, int]()
    for now_s in range(0, 4 * 3600, 2):
        away = sum(sent.get(now_s - ago_s, 0) for ago_s in range(0, away_s, 2))
        excess = balance.look(now_s, [member(2, 0)], ME, 300 - away)
        balance.sent(excess.clients)
        sent[now_s] = excess.clients
    first = sum(number for at_s, number in sent.items() if at_s < 60)
    assert 150 <= first <= REBALANCE_TRIES * 150
    assert sum(sent.values()) <= REBALANCE_TRIES * 150 * (8 + 4), "after 30 s, 30 s, 60 s, 2 minutes, …, once an hour"
    assert looks(balance, 300, 0, 0, since_s=20_000.0, until_s=20_032.0).clients == 200, "another node is a new chance"


def test_after_a_calm_time_it_waits_no_longer_than_at_first() -> None:
    balance = ClientBalance(SETTINGS)
    for since_s in (0.0, 200.0, 400.0):
        assert looks(balance, 300, 0, since_s=since_s, until_s=since_s + 26.0) == NONE
        assert looks(balance, 300, 0, since_s=since_s + 30.0, until_s=since_s + 32.0).clients == 150
        assert looks(balance, 150, 150, since_s=since_s + 34.0, until_s=since_s + 198.0) == NONE


# One that an operator asked for.


def asked() -> AskedBalance:
    return AskedBalance("Jo", SETTINGS, 0.0)


def state_of(balance: AskedBalance) -> AskedState:
    return balance.progress().state


def test_one_that_was_asked_for_begins_at_once_and_ends_when_nobody_sends_clients_away_any_more() -> None:
    balance = asked()
    assert looks(balance, 300, 0, until_s=0.0) == Excess(150, 1.0)
    balance.sent(145)
    assert looks(balance, 155, 145, since_s=2.0, until_s=2.0).clients == 5, "below the thresholds, but above the mean"
    balance.sent(5)
    assert looks(balance, 150, 150, since_s=4.0, until_s=2.0 + REBALANCE_SETTLED_S - 1.0) == NONE
    assert not balance.is_over, "some who were sent away may come back"
    looks(balance, 150, 150, since_s=2.0 + REBALANCE_SETTLED_S, until_s=2.0 + REBALANCE_SETTLED_S)
    assert (state_of(balance), balance.progress().moved) == ("balanced", 150)
    assert looks(balance, 300, 0, since_s=20.0) == NONE, "it is over"


def test_it_takes_part_until_the_others_are_done() -> None:
    balance = asked()
    for now_s in range(0, 60, 2):
        assert balance.look(now_s, [member(2, 150, rebalancing=True), member(3, 0)], ME, 50) == NONE
    assert not balance.is_over
    assert balance.look(60.0, [member(2, 60), member(3, 50)], ME, 90).clients == 23, "who came here from there"


def test_it_gives_up_on_clients_that_always_come_back() -> None:
    balance, sent = asked(), 0
    for now_s in range(0, 60, 2):
        excess = balance.look(now_s, [member(2, 0)], ME, 300)
        balance.sent(excess.clients)
        sent += excess.clients
    assert sent == balance.progress().moved == REBALANCE_TRIES * 150
    assert state_of(balance) == "gave_up"


def test_one_whose_tries_are_used_up_within_the_thresholds_is_balanced() -> None:
    balance = asked()
    looks(balance, 300, 0, until_s=0.0)
    balance.sent(REBALANCE_TRIES * 150)
    assert looks(balance, 155, 145, since_s=2.0, until_s=20.0) == NONE
    assert state_of(balance) == "balanced"


def test_a_node_that_joins_gets_its_share_of_a_rebalance_that_runs() -> None:
    balance = asked()
    looks(balance, 300, 0, until_s=0.0)
    balance.sent(REBALANCE_TRIES * 150)
    assert looks(balance, 300, 0, 0, since_s=2.0, until_s=2.0).clients == REBALANCE_TRIES * 50


def test_who_stops_it_first_says_how_it_ended() -> None:
    balance = asked()
    balance.pause(1.0)
    balance.end("balanced")
    assert state_of(balance) == "stopped"


def test_it_has_nobody_to_send_clients_to_where_no_other_node_takes_any() -> None:
    assert looks(balance := asked(), 300, until_s=REBALANCE_SETTLED_S) == NONE
    assert state_of(balance) == "balanced"


def test_what_is_not_asked_is_as_configured() -> None:
    assert SETTINGS.asked(AskedRebalance()) == SETTINGS
    assert SETTINGS.asked(AskedRebalance(relative_threshold=2.0, absolute_threshold=5)) == Balancing(2.0, 5, 30.0)
