"""How many clients a node sends to others because it has more than its share, and when."""

from __future__ import annotations

from typing import Final

import pytest

from flockmq.bounds import REBALANCE_SETTLED_S, REBALANCE_TRIES
from flockmq.management.rebalance_rows import AskedRebalance, AskedState
from flockmq.management.view import Member
from flockmq.node.client_balance import NONE, AskedBalance, Balancing, ClientBalance, Excess
from flockmq.node.node_load import Figures

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
    durable_clients: int | None = None,
    messages_per_s: int | None = None,
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
        durable_clients=durable_clients,
        messages_per_s=messages_per_s,
    )


def look(balance: ClientBalance | AskedBalance, now_s: float, members: list[Member], clients: int) -> Excess:
    """A look after which as many clients as there are to be go."""
    excess = balance.look(now_s, members, ME, Figures(clients))
    if excess.load:
        balance.found(now_s, round(excess.load), came_back=False)
    return excess


def looks(
    balance: ClientBalance | AskedBalance, clients: int, *others: int, since_s: float = 0.0, until_s: float = 60.0
) -> Excess:
    """The last of looks every two seconds."""
    excess = NONE
    now_s = since_s
    while now_s <= until_s:
        excess = look(balance, now_s, [member(number, count) for number, count in enumerate(others, 2)], clients)
        now_s += 2.0
    return excess


def test_it_waits_and_then_sends_what_is_beyond_the_mean() -> None:
    balance = ClientBalance(SETTINGS)
    assert looks(balance, 300, 0, until_s=28.0) == NONE
    assert looks(balance, 300, 0, since_s=30.0, until_s=32.0)[:2] == (150, 1.0)


def test_it_goes_on_to_the_mean_and_begins_no_sooner_than_before() -> None:
    balance = ClientBalance(SETTINGS)
    assert looks(balance, 300, 0).load == 150
    assert looks(balance, 155, 145, since_s=62.0, until_s=62.0).load == 5, "below the thresholds, but above the mean"
    assert looks(balance, 150, 150, since_s=64.0, until_s=64.0) == NONE
    assert looks(balance, 155, 145, since_s=66.0, until_s=200.0) == NONE
    assert looks(balance, 300, 0, since_s=202.0, until_s=228.0) == NONE


@pytest.mark.parametrize("balance", [ClientBalance(SETTINGS), AskedBalance(AskedRebalance(name="ops"), SETTINGS, 0.0)])
def test_who_is_on_its_way_to_another_node_still_counts(balance: ClientBalance | AskedBalance) -> None:
    assert looks(balance, 300, 0).load == 150
    balance.sent(100, 100.0)
    assert looks(balance, 200, 40, since_s=62.0, until_s=62.0).load == 50, "60 are on their way"
    balance.sent(50, 50.0)
    assert looks(balance, 150, 60, since_s=64.0, until_s=64.0) == NONE


@pytest.mark.parametrize(
    ("clients", "others"), [(109, (101,)), (1090, (1010,)), (10, (0,)), (100, (100, 100)), (0, (50,))]
)
def test_small_differences_are_left(clients: int, others: tuple[int, ...]) -> None:
    assert looks(ClientBalance(SETTINGS), clients, *others) == NONE


def test_donors_share_the_rate() -> None:
    assert looks(ClientBalance(SETTINGS), 100, 100, 100, 0)[:2] == (25, 1 / 3)


def test_a_node_that_comes_or_goes_makes_it_wait_anew() -> None:
    balance = ClientBalance(SETTINGS)
    assert looks(balance, 300, 0).load == 150
    assert looks(balance, 300, 0, 0, since_s=62.0, until_s=90.0) == NONE
    assert looks(balance, 300, 0, 0, since_s=92.0, until_s=94.0).load == 200
    assert looks(balance, 300, 0, since_s=96.0, until_s=96.0) == NONE


@pytest.mark.parametrize("state", [{"draining": True}, {"ready": False}, {"heard": False}])
def test_nobody_is_sent_to_nodes_that_take_no_clients(state: dict[str, bool]) -> None:
    balance = ClientBalance(SETTINGS)
    for now_s in range(0, 100, 2):
        assert look(balance, now_s, [member(2, 0, **state)], 1000) == NONE


def test_its_own_row_counts_once_as_it_is_now() -> None:
    balance = ClientBalance(SETTINGS)
    members = [member(1, 7), member(2, 0)]
    excess = [look(balance, now_s, members, 100) for now_s in range(0, 40, 2)]
    assert excess[-1].load == 50


@pytest.mark.parametrize("away_s", [0, 6])
def test_clients_that_always_come_back_are_sent_away_ever_more_seldom(away_s: int) -> None:
    """`away_s`: how long a client takes to come back to this node."""
    balance, sent = ClientBalance(SETTINGS), dict[int, int]()
    for now_s in range(0, 4 * 3600, 2):
        away = sum(sent.get(now_s - ago_s, 0) for ago_s in range(0, away_s, 2))
        excess = look(balance, now_s, [member(2, 0)], 300 - away)
        balance.sent(round(excess.load), excess.load)
        sent[now_s] = round(excess.load)
    first = sum(number for at_s, number in sent.items() if at_s < 60)
    assert 150 <= first <= REBALANCE_TRIES * 150
    assert sum(sent.values()) <= REBALANCE_TRIES * 150 * (8 + 4), "after 30 s, 30 s, 60 s, 2 minutes, …, once an hour"
    assert looks(balance, 300, 0, 0, since_s=20_000.0, until_s=20_032.0).load == 200, "another node is a new chance"


def test_after_a_calm_time_it_waits_no_longer_than_at_first() -> None:
    balance = ClientBalance(SETTINGS)
    for since_s in (0.0, 200.0, 400.0):
        assert looks(balance, 300, 0, since_s=since_s, until_s=since_s + 26.0) == NONE
        assert looks(balance, 300, 0, since_s=since_s + 30.0, until_s=since_s + 32.0).load == 150
        assert looks(balance, 150, 150, since_s=since_s + 34.0, until_s=since_s + 198.0) == NONE


@pytest.mark.parametrize(("clients", "begins"), [(8, False), (10, True), (90, True)])
def test_a_small_cluster_is_balanced_unless_the_difference_may_be_chance(clients: int, *, begins: bool) -> None:
    assert looks(ClientBalance(Balancing()), clients, 0).load == (clients / 2 if begins else 0.0)


def test_in_a_large_one_a_hundred_clients_matter_as_much_as_the_threshold_says() -> None:
    assert Balancing().begins_above(10_000.0) == Balancing(absolute=100).begins_above(10_000.0) == 11_000.0
    assert Balancing(relative=1.0).begins_above(10_000.0) == 10_100.0


def test_a_node_with_few_clients_and_most_of_the_traffic_sends_some_away() -> None:
    balance, quiet = ClientBalance(SETTINGS), [member(2, 100, durable_clients=0, messages_per_s=200)]
    for now_s in range(0, 34, 2):
        excess = balance.look(now_s, quiet, ME, Figures(100, 0, 1800.0))
    assert balance.is_shedding
    assert excess.load == pytest.approx(200 * (2 * 0.5 + 0.9) / 3 - 100)
    assert excess.scale.load(Figures(1, 0, 18.0)) == pytest.approx((2 * 1.0 + 1.8) / 3)


def test_beside_a_node_of_an_older_release_connections_alone_count() -> None:
    balance = ClientBalance(SETTINGS)
    for now_s in range(0, 34, 2):
        assert balance.look(now_s, [member(2, 100)], ME, Figures(100, 100, 5000.0)) == NONE


def test_it_pauses_where_no_client_can_go() -> None:
    balance = ClientBalance(SETTINGS)
    assert balance.look(0.0, [member(2, 0)], ME, Figures(300)) == NONE
    assert balance.has_too_much, "and it waits"
    assert balance.look(30.0, [member(2, 0)], ME, Figures(300)).load == 150
    balance.found(30.0, 0, came_back=True)
    assert not balance.is_shedding
    assert looks(balance, 300, 0, since_s=32.0, until_s=58.0) == NONE


def test_only_those_go_that_are_connected_since_before_any_node_began_to_send_clients_away() -> None:
    balance = ClientBalance(SETTINGS)
    assert looks(balance, 300, 0).load == 150
    excess = balance.look(62.0, [member(2, 0)], ME, Figures(300))
    assert excess.steady_s == 62.0 - 30.0, "it began then"
    other = ClientBalance(SETTINGS)
    for now_s in range(0, 34, 2):
        excess = other.look(now_s, [member(2, 500, rebalancing=True), member(3, 0)], ME, Figures(400))
    assert excess.load == 100
    assert excess.steady_s >= 32.0, "the other one has sent clients away all the time, maybe to this one"


# One that an operator asked for.


def asked() -> AskedBalance:
    return AskedBalance(AskedRebalance(name="Jo"), SETTINGS, 0.0)


def state_of(balance: AskedBalance) -> AskedState:
    return balance.progress().state


def test_one_that_was_asked_for_begins_at_once_and_ends_when_nobody_sends_clients_away_any_more() -> None:
    balance = asked()
    assert looks(balance, 300, 0, until_s=0.0)[:2] == (150, 1.0)
    balance.sent(145, 145.0)
    assert looks(balance, 155, 145, since_s=2.0, until_s=2.0).load == 5, "below the thresholds, but above the mean"
    balance.sent(5, 5.0)
    assert looks(balance, 150, 150, since_s=4.0, until_s=2.0 + REBALANCE_SETTLED_S - 1.0) == NONE
    assert not balance.is_over, "some who were sent away may come back"
    looks(balance, 150, 150, since_s=2.0 + REBALANCE_SETTLED_S, until_s=2.0 + REBALANCE_SETTLED_S)
    assert (state_of(balance), balance.progress().moved) == ("balanced", 150)
    assert looks(balance, 300, 0, since_s=20.0) == NONE, "it is over"


def test_it_takes_part_until_the_others_are_done() -> None:
    balance = asked()
    for now_s in range(0, 60, 2):
        assert look(balance, now_s, [member(2, 150, rebalancing=True), member(3, 0)], 50) == NONE
    assert not balance.is_over
    assert look(balance, 60.0, [member(2, 60), member(3, 50)], 90).load == pytest.approx(23 + 1 / 3), "who came here"


def test_it_gives_up_on_clients_that_always_come_back() -> None:
    balance, sent = asked(), 0
    for now_s in range(0, 60, 2):
        excess = look(balance, now_s, [member(2, 0)], 300)
        balance.sent(round(excess.load), excess.load)
        sent += round(excess.load)
    assert sent == balance.progress().moved == REBALANCE_TRIES * 150
    assert state_of(balance) == "gave_up"


def test_one_whose_tries_are_used_up_within_the_thresholds_is_balanced() -> None:
    balance = asked()
    looks(balance, 300, 0, until_s=0.0)
    balance.sent(REBALANCE_TRIES * 150, REBALANCE_TRIES * 150.0)
    assert looks(balance, 155, 145, since_s=2.0, until_s=20.0) == NONE
    assert state_of(balance) == "balanced"


def test_a_node_that_joins_gets_its_share_of_a_rebalance_that_runs() -> None:
    balance = asked()
    looks(balance, 300, 0, until_s=0.0)
    balance.sent(REBALANCE_TRIES * 150, REBALANCE_TRIES * 150.0)
    assert looks(balance, 300, 0, 0, since_s=2.0, until_s=2.0).load == REBALANCE_TRIES * 50


def test_one_that_is_asked_to_wait_is_a_donor_meanwhile_and_sends_nobody_away() -> None:
    balance = AskedBalance(AskedRebalance(wait=20.0, settle=60.0), SETTINGS, 0.0)
    assert looks(balance, 300, 0, until_s=18.0) == NONE
    assert balance.is_shedding
    assert looks(balance, 300, 0, since_s=20.0, until_s=20.0).load == 150
    assert looks(balance, 150, 150, since_s=22.0, until_s=78.0) == NONE
    assert not balance.is_over
    looks(balance, 150, 150, since_s=80.0, until_s=80.0)
    assert state_of(balance) == "balanced"


@pytest.mark.parametrize(("came_back", "state"), [(True, "gave_up"), (False, "balanced")])
def test_it_ends_where_no_client_can_go(came_back: bool, state: AskedState) -> None:
    """They came back; or each has more load than is too much, and stays."""
    balance = asked()
    for now_s in range(0, 14, 2):
        if excess := balance.look(now_s, [member(2, 0)], ME, Figures(300)).load:
            assert excess == 150
            balance.found(now_s, 0, came_back=came_back)
    assert state_of(balance) == state


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
