"""The checker on sessions, connections and nodes: it passes what is right, and finds what is wrong where it is."""

from __future__ import annotations

import pytest

from judges import judge as checker
from judges.judge import judge, matches
from judges.made_up import Script, begun
from load.history import AlarmMissing, AnyEvent, FaultBegan, FaultEnded, RedisLost, RowsLeft, TablesStood, Unwell


def test_session_present_is_right() -> None:
    script = Script()
    script.connect("first", present=True)
    script.connect("clean", lasts=False)
    script.close("clean")
    script.connect("clean", lasts=False, present=True)
    script.connect("gone")
    script.close("gone")
    script.connect("gone")
    assert script.found() == {checker.SESSION_PRESENT: 3}


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
    assert script.found() == {checker.LOST: 1}


def test_the_older_of_two_connections_ends_soon() -> None:
    script = Script()
    older = script.connect("c")
    script.connect("c", present=True, node="b")
    script.close("c", older, by_server=True)
    assert script.found() == {}
    script.connect("c", present=True, node="a")
    script.tick(60.0)
    script.connect("other")
    assert script.found() == {checker.TWO_CONNECTIONS: 1}


def test_a_node_that_hears_nothing_closes_nothing() -> None:
    script = Script()
    older = script.connect("c")
    script.events.append(FaultBegan(script.tick(), "stop replicant", ("a",)))
    script.connect("c", present=True, node="b")
    script.tick(20.0)
    script.events.append(FaultEnded(script.now, "stop replicant", ("a",)))
    script.close("c", older, by_server=True)
    assert script.found() == {}


# Nodes.


def test_tables_are_the_same_everywhere() -> None:
    same = [TablesStood(1.0, node, "route", "1-7", {"routes": "ff"}) for node in "abc"]
    assert judge(same).findings == []
    for other in (
        TablesStood(1.0, "d", "route", "1-8", {"routes": "ff"}),
        TablesStood(1.0, "d", "route", "1-7", {"routes": "fe"}),
    ):
        assert judge([*same, other]).by_kind() == {checker.DIGESTS: 1}
    assert judge([*same, TablesStood(1.0, "d", "auth", "1-2", {"users": "00"})]).findings == []


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (RowsLeft(1.0, "a", 3), checker.ROUTES_LEFT),
        (AlarmMissing(1.0, "Redis lost its data"), checker.ALARM),
        (Unwell(1.0, "a", "Traceback"), checker.UNWELL),
    ],
)
def test_what_a_campaign_saw_of_nodes_is_told(event: AnyEvent, kind: str) -> None:
    assert judge([event]).by_kind() == {kind: 1}


@pytest.mark.parametrize(
    ("filter", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a", False),
        ("a", "a/b", False),
        ("+/b", "a/b", True),
        ("+", "a/b", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a/b", True),
        ("b/#", "a/b", False),
    ],
)
def test_filters_match_as_mqtt_says(filter: str, topic: str, expected: bool) -> None:
    assert matches(filter, topic) is expected
