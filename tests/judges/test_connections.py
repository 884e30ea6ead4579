"""The judge of connections: one a client id."""

from __future__ import annotations

import pytest

from judges.judge import TWO_CONNECTIONS
from judges.made_up import Script, begun
from load.history import FaultBegan, FaultEnded


def test_the_older_of_two_connections_ends_soon() -> None:
    script = Script()
    older = script.connect("c")
    script.connect("c", present=True, node="b")
    script.close("c", older, by_server=True)
    assert script.found() == {}
    script.connect("c", present=True, node="a")
    script.tick(60.0)
    script.connect("other")
    assert script.found() == {TWO_CONNECTIONS: 1}


def test_a_node_that_hears_nothing_closes_nothing() -> None:
    script = Script()
    older = script.connect("c")
    script.events.append(FaultBegan(script.tick(), "stop replicant", ("a",)))
    script.connect("c", present=True, node="b")
    script.tick(20.0)
    script.events.append(FaultEnded(script.now, "stop replicant", ("a",)))
    script.close("c", older, by_server=True)
    assert script.found() == {}


@pytest.mark.parametrize(
    ("kind", "found"), [("stop leader", {}), ("kill core", {}), ("stop redis", {TWO_CONNECTIONS: 1})]
)
def test_an_owner_that_stands_still_or_dies_closes_nothing(kind: str, found: dict[str, int]) -> None:
    script = Script()
    older = script.connect("c")
    script.connect("c", present=True, node="b")
    script.fault(kind, lasts_s=8.0)
    script.close("c", older, by_server=True)
    assert script.found() == found


def test_a_connection_of_the_chapter_before_may_end_late() -> None:
    script = begun()
    script.close("left", connection=99)
    script.crossing(1)
    assert script.found() == {}


def test_of_connections_that_came_at_once_one_stays_whichever_was_told_first() -> None:
    for survivors in (1, 2):
        script = Script()
        one = script.ask("c")
        other = script.ask("c", node="b")
        script.told("c", other, present=False)
        script.told("c", one, present=True)
        if survivors == 1:
            script.close("c", one, by_server=True)
        script.tick(60.0)
        script.connect("somebody")
        assert script.found() == ({} if survivors == 1 else {TWO_CONNECTIONS: 1})


def test_a_connection_that_outlives_several_is_found_once() -> None:
    script = Script()
    script.connect("c")
    for node in "bcd":
        script.tick(10.0)
        script.connect("c", present=True, node=node)
        script.close("c")
    script.tick(60.0)
    script.connect("somebody")
    assert script.found() == {TWO_CONNECTIONS: 1}


def test_a_connection_still_has_time_to_end_when_the_history_does() -> None:
    script = Script()
    script.connect("c")
    script.connect("c", present=True, node="b")
    script.tick(1.0)
    script.connect("somebody")
    assert script.found() == {}


@pytest.mark.parametrize(("before", "found"), [("kill core", {}), ("kill replicant", {TWO_CONNECTIONS: 1})])
def test_a_node_that_has_not_read_where_a_slot_went_closes_nothing_while_redis_is_away(
    before: str, found: dict[str, int]
) -> None:
    script = Script()
    older = script.connect("c")
    script.fault(before, lasts_s=1.0)
    script.tick(2.0)
    script.connect("c", present=True, node="b")
    script.events.append(FaultBegan(script.tick(), "isolate redis", ("redis",)))
    script.tick(8.0)
    script.events.append(FaultEnded(script.now, "isolate redis", ("redis",)))
    script.tick(1.0)
    script.close("c", older, by_server=True)
    assert script.found() == found
