"""The judge of sessions: CONNACK is right about them."""

from __future__ import annotations

import pytest

from judges.judge import LOST, SESSION_PRESENT
from judges.made_up import ONE_CORE, Script, begun
from load.history import RedisLost


def test_session_present_is_right() -> None:
    script = Script()
    script.connect("first", present=True)
    script.connect("clean", lasts=False)
    script.close("clean")
    script.connect("clean", lasts=False, present=True)
    script.connect("gone")
    script.close("gone")
    script.connect("gone")
    assert script.found() == {SESSION_PRESENT: 3}


def test_a_session_may_have_begun_where_connack_never_came() -> None:
    script = Script()
    script.ask("c")
    script.close("c", by_server=True)
    script.connect("c", present=True)
    assert script.found() == {}


def test_a_lost_redis_excuses_a_session_that_connack_says_is_gone_and_no_other() -> None:
    script = begun()
    script.connect("stays")
    script.subscribe("stays")
    script.tick(1.0)
    script.publish("pub", 1)
    script.acknowledge("pub", 1)
    script.close("sub")
    script.close("stays")
    script.events.append(RedisLost(script.tick()))
    script.connect("sub")
    script.connect("stays", present=True)
    assert script.found() == {LOST: 1}


def test_clean_start_finds_no_session_and_leaves_none_before_it() -> None:
    script = Script()
    script.connect("c")
    script.close("c")
    script.connect("c", clean_start=True, present=True)
    assert script.found() == {SESSION_PRESENT: 1}
    script = Script()
    script.connect("c")
    script.close("c")
    script.connect("c", clean_start=True, lasts=False)
    script.close("c")
    script.connect("c", present=True)
    assert script.found() == {SESSION_PRESENT: 1}


@pytest.mark.parametrize(
    ("away_s", "present", "found"),
    [
        (50.0, True, {}),
        (50.0, False, {SESSION_PRESENT: 1}),
        (60.5, True, {}),
        (60.5, False, {}),
        (70.0, False, {}),
        (70.0, True, {SESSION_PRESENT: 1}),
    ],
)
def test_a_session_is_there_for_as_long_as_its_expiry(away_s: float, present: bool, found: dict[str, int]) -> None:
    script = Script()
    script.connect("c", expiry_s=60.0)
    script.close("c")
    script.tick(away_s)
    script.connect("c", expiry_s=60.0, present=present)
    assert script.found() == found


def test_a_fault_may_hide_for_a_while_that_the_client_left_and_a_wrong_time_how_long_ago() -> None:
    script = Script()
    script.connect("c", expiry_s=60.0)
    script.close("c")
    script.fault("stop replicant", "a", lasts_s=5.0)
    script.tick(70.0)
    script.connect("c", expiry_s=60.0, present=True)
    assert script.found() == {}
    for present in (True, False):
        script = Script()
        script.connect("c", expiry_s=60.0)
        script.close("c")
        script.tick(20.0)
        script.fault("clock core", "a")
        script.tick(70.0 if present else 20.0)
        script.connect("c", expiry_s=60.0, present=present)
        assert script.found(ONE_CORE) == {}
        assert script.found() == {SESSION_PRESENT: 1}


@pytest.mark.parametrize(
    ("node", "lasts_s", "found"), [("a", 5.0, {}), ("a", 1.0, {SESSION_PRESENT: 1}), ("b", 5.0, {SESSION_PRESENT: 1})]
)
def test_a_client_is_away_for_as_long_as_its_node_is_cut_off(node: str, lasts_s: float, found: dict[str, int]) -> None:
    script = Script()
    script.connect("c", expiry_s=3.0)
    script.fault("isolate replicant", node, lasts_s=lasts_s)
    script.connect("c", node="b", expiry_s=3.0)
    assert script.found() == found


def test_a_session_that_waits_for_ever_does() -> None:
    script = Script()
    script.connect("c", version=4, expiry_s=float("inf"))
    script.close("c")
    script.tick(1e6)
    script.connect("c", version=4, expiry_s=float("inf"))
    assert script.found() == {SESSION_PRESENT: 1}


def test_a_disconnect_that_ends_the_session_does() -> None:
    script = Script()
    script.connect("c")
    script.disconnect("c", ends=True)
    script.connect("c")
    assert script.found() == {}
    script.disconnect("c", ends=True)
    script.tick(10.0)
    script.connect("c", present=True)
    assert script.found() == {SESSION_PRESENT: 1}


def test_a_disconnect_amid_a_fault_may_not_have_been_heard() -> None:
    script = Script()
    script.connect("c")
    script.disconnect("c", ends=True)
    script.fault("cut", "a")
    script.tick(10.0)
    script.connect("c", present=True)
    assert script.found() == {}


def test_a_connect_that_was_refused_begins_no_session() -> None:
    script = Script()
    script.ask("c")
    script.turn_away("c")
    script.connect("c", present=True)
    assert script.found() == {SESSION_PRESENT: 1}


def test_a_connect_that_nobody_answered_may_have_ended_the_session() -> None:
    for clean_start, found in ((True, {}), (False, {SESSION_PRESENT: 1})):
        script = Script()
        script.connect("c")
        script.close("c")
        script.ask("c", clean_start=clean_start)
        script.close("c")
        script.connect("c")
        assert script.found() == found


@pytest.mark.parametrize(("away_s", "found"), [(10.0, {}), (2.0, {LOST: 1})])
def test_a_session_that_is_present_may_be_one_that_an_unanswered_connect_began_when_the_former_had_expired(
    away_s: float, found: dict[str, int]
) -> None:
    script = Script()
    script.connect("pub")
    script.connect("sub", expiry_s=9.0)
    script.subscribe("sub")
    script.tick(1.0)
    script.close("sub")
    script.put("pub", 1)
    script.tick(away_s)
    script.ask("sub", expiry_s=9.0)
    script.close("sub")
    script.connect("sub", expiry_s=9.0, present=True)
    assert script.found() == found


def test_a_session_that_is_present_is_the_former_one_where_each_connect_was_answered() -> None:
    script = Script()
    script.connect("pub")
    script.connect("sub", expiry_s=9.0)
    script.subscribe("sub")
    script.tick(1.0)
    script.close("sub")
    script.put("pub", 1)
    script.tick(8.0)
    script.connect("sub", expiry_s=9.0, present=True)
    assert script.found() == {LOST: 1}


def test_of_connections_that_came_at_once_the_answers_come_in_any_order() -> None:
    script = Script()
    one = script.ask("c")
    other = script.ask("c", node="b")
    script.told("c", other, present=True)
    script.close("c", other, by_server=True)
    script.told("c", one, present=False)
    assert script.found() == {}
    script.close("c", one)
    script.connect("c", present=True)
    assert script.found() == {}
    script.close("c")
    script.connect("c")
    assert script.found() == {SESSION_PRESENT: 1}


def test_a_session_that_lasts_no_longer_ends_with_its_connection() -> None:
    script = Script()
    script.connect("c")
    script.close("c")
    script.connect("c", lasts=False, present=True)
    script.close("c")
    script.connect("c")
    assert script.found() == {}


@pytest.mark.parametrize(
    ("away_s", "present", "found"), [(1.0, True, 0), (1.0, False, 1), (5.0, True, 1), (5.0, False, 0)]
)
def test_a_session_lasts_for_as_long_as_disconnect_says(away_s: float, present: bool, found: int) -> None:
    script = Script()
    script.connect("c", expiry_s=3600.0)
    script.disconnect("c", expiry_s=2.0)
    script.tick(away_s)
    script.connect("c", present=present)
    assert script.found() == ({SESSION_PRESENT: found} if found else {})


@pytest.mark.parametrize("present", [True, False])
def test_unless_it_may_not_have_been_heard(present: bool) -> None:
    script = Script()
    script.connect("c", expiry_s=3600.0)
    with script.during("stop replicant", "a"):
        script.disconnect("c", expiry_s=2.0)
    script.tick(60.0)
    script.connect("c", present=present)
    assert script.found() == {}
