"""The judge of what is retained: the last that was acknowledged, on every node."""

from __future__ import annotations

import pytest

from judges.judge import REFUSED, RETAINED, Rules
from judges.made_up import ONE_CORE, Script
from load.history import Message, RedisLost, RetainedStood, RulesChanged, Will


def written(*numbers: int, version: int = 5) -> Script:
    """By one client, one after the other, all acknowledged."""
    script = Script(tells=True)
    script.connect("pub", version=version)
    for number in numbers:
        script.put("pub", number, retain=True)
    return script


def shows(script: Script, *numbers: int, rules: Rules = Rules()) -> dict[str, int]:  # noqa: B008
    """What is found where nodes show this; 0: nothing."""
    script.tick(1.0)
    for node, number in zip("abcd", numbers, strict=False):
        values = {"t": Message("pub", number)} if number else {}
        script.events.append(RetainedStood(script.tick(), node, values))
    return script.found(rules)


def test_the_last_that_was_acknowledged_is_there_on_every_node() -> None:
    assert shows(written(1, 2), 2, 2) == {}
    assert shows(written(1, 2), 2, 1) == {RETAINED: 1}
    assert shows(written(1, 2), 1, 1) == {RETAINED: 2}
    assert shows(written(1, 2), 0) == {RETAINED: 1}
    assert shows(written(1, 2), 7) == {RETAINED: 1}


def test_what_was_sent_behind_it_and_got_no_answer_may_be_there_but_everywhere() -> None:
    for numbers, found in (((2, 2), {}), ((3, 3), {}), ((2, 3), {RETAINED: 1}), ((1, 1), {RETAINED: 2})):
        script = written(1, 2)
        script.publish("pub", 3, retain=True)
        assert shows(script, *numbers) == found


def test_what_was_given_up_before_isnt_there() -> None:
    script = written(1)
    script.publish("pub", 2, retain=True)
    script.close("pub")
    script.connect("other")
    script.put("other", 1, retain=True)
    for node in "ab":
        script.events.append(RetainedStood(script.tick(), node, {"t": Message("pub", 2)}))
    assert script.found() == {RETAINED: 2}


def test_what_clears_leaves_nothing() -> None:
    for number, found in ((0, {}), (1, {RETAINED: 1})):
        script = written(1)
        script.put("pub", 2, retain=True, clears=True)
        assert shows(script, number) == found


def test_nothing_is_there_before_anything_was_acknowledged() -> None:
    for number in (0, 1):
        script = written()
        script.publish("pub", 1, retain=True)
        assert shows(script, number) == {}


def test_what_was_refused_isnt_there_and_is_found_once() -> None:
    for number, found in ((1, {}), (2, {REFUSED: 1})):
        script = written(1)
        script.publish("pub", 2, retain=True)
        script.refuse("pub", 2)
        assert shows(script, number) == found


@pytest.mark.parametrize(
    ("waits_s", "number", "found"),
    [(1.0, 2, {}), (1.0, 0, {RETAINED: 1}), (9.0, 2, {}), (9.0, 0, {}), (20.0, 2, {RETAINED: 1}), (20.0, 0, {})],
)
def test_what_expires_is_gone_then_and_not_before(waits_s: float, number: int, found: dict[str, int]) -> None:
    script = written(1)
    script.put("pub", 2, retain=True, expiry_s=10.0)
    script.tick(waits_s)
    assert shows(script, number) == found


def test_when_it_expires_nobody_knows_if_the_time_was_wrong() -> None:
    script = written(1)
    script.put("pub", 2, retain=True, expiry_s=10.0)
    script.fault("clock core", "a")
    assert shows(script, 0, rules=ONE_CORE) == {}
    assert shows(script, 0) == {RETAINED: 1}


def test_what_was_acknowledged_just_before_redis_lost_it_may_be_gone() -> None:
    for number in (1, 2):
        script = written(1)
        script.tick(5.0)
        script.put("pub", 2, retain=True)
        script.events.append(RedisLost(script.tick()))
        assert shows(script, number) == {}


def test_before_version_5_what_is_denied_is_acknowledged_and_dropped() -> None:
    for version, found in ((4, {}), (5, {RETAINED: 1})):
        script = written(1, version=version)
        script.events.append(RulesChanged(script.tick(), "t", is_denied=True))
        script.put("pub", 2, retain=True)
        assert shows(script, 1) == found


def test_of_writers_that_nobody_orders_all_nodes_show_the_same() -> None:
    for numbers, found in (((1, 1), {}), ((1, 2), {RETAINED: 1})):
        script = written(1, 2)
        script.connect("mortal", will=Will(1, "t", 1, retain=True))
        assert shows(script, *numbers) == found


@pytest.mark.parametrize(
    ("shown", "raced", "found"),
    [("pub 2", False, 0), ("pub! 2", False, 0), ("pub! 1", False, 1), ("pub! 1", True, 0)],
)
def test_a_will_comes_before_what_a_later_connection_publishes(shown: str, raced: bool, found: int) -> None:
    script = Script(tells=True)
    for number in (1, 2):
        first = script.ask("pub", will=Will(number, "t", 1, retain=True))
        if raced:
            script.told("pub", script.ask("pub"), present=False)
        script.told("pub", first, present=False)
        script.put("pub", number, retain=True)
        script.close("pub", first)
    script.tick(60.0)
    publisher, number_shown = shown.split()
    script.events.append(RetainedStood(script.tick(), "a", {"t": Message(publisher, int(number_shown))}))
    assert script.found().get(RETAINED, 0) == found


@pytest.mark.parametrize(("away_s", "is_one_release", "found"), [(0.5, False, 0), (0.5, True, 1), (2.0, False, 1)])
def test_amid_an_upgrade_a_will_may_come_behind_what_a_client_publishes_that_is_back_at_once(
    away_s: float, is_one_release: bool, found: int
) -> None:
    script = Script()
    for number in (1, 2):
        script.connect("pub", will=Will(number, "t", 1, retain=True))
        script.put("pub", number, retain=True)
        if number == 1:
            script.close("pub")
            script.tick(away_s)
    script.events.append(RetainedStood(script.tick(), "a", {"t": Message("pub!", 1)}))
    assert script.found(Rules(is_one_release=is_one_release)).get(RETAINED, 0) == found


def test_a_node_may_be_looked_at_in_parts() -> None:
    script = written(1)
    script.put("pub", 2, "s", retain=True)
    for node in "ab":
        for topic, number in (("t", 1), ("s", 2)):
            script.events.append(RetainedStood(script.tick(), node, {topic: Message("pub", number)}))
    assert script.found() == {}
    script.put("pub", 3, retain=True)
    assert shows(script, 3, 3) == {RETAINED: 2}


# What a subscriber is sent.


def test_who_subscribes_is_sent_nothing_that_was_overwritten_before() -> None:
    script = written(1, 2)
    script.connect("sub")
    script.subscribe("sub")
    script.deliver("sub", "pub", 2, retained=True)
    assert script.found() == {}
    script.deliver("sub", "pub", 1, retained=True)
    assert script.found() == {RETAINED: 1}


def test_what_was_overwritten_since_may_come() -> None:
    script = written(1)
    script.connect("sub")
    script.ask_for("sub")
    script.put("pub", 2, retain=True)
    script.deliver("sub", "pub", 1, retained=True)
    script.unsubscribe("sub")
    script.subscribe("sub")
    script.deliver("sub", "pub", 1, retained=True)
    assert script.found() == {}
