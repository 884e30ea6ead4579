"""The judge of subscriptions: a client gets what it subscribed to, and nothing else."""

from __future__ import annotations

import pytest

from judges.judge import ECHOED, FILTERS, FORGOTTEN, UNASKED
from judges.made_up import Script, begun
from load.history import ChangeAsked


def test_what_comes_was_asked_for() -> None:
    script = begun(tells=True)
    script.crossing(1)
    assert script.found() == {}
    script.put("pub", 2, "other")
    script.deliver("sub", "pub", 2, "other")
    assert script.found() == {UNASKED: 1}


def test_it_may_come_before_suback() -> None:
    script = Script(tells=True)
    script.connect("pub")
    script.connect("sub")
    script.ask_for("sub")
    script.put("pub", 1)
    script.deliver("sub", "pub", 1)
    assert script.found() == {}


def test_behind_unsuback_comes_what_was_sent_before_and_nothing_else() -> None:
    script = begun(tells=True)
    script.publish("pub", 1)
    script.unsubscribe("sub")
    script.tick(5.0)
    script.deliver("sub", "pub", 1)
    assert script.found() == {}
    script.publish("pub", 2)
    script.deliver("sub", "pub", 2)
    assert script.found() == {UNASKED: 1}


def test_who_subscribed_again_meanwhile_has_the_subscription() -> None:
    script = begun(tells=True)
    script.unsubscribe("sub")
    script.subscribe("sub")
    script.tick(5.0)
    script.crossing(1)
    assert script.found() == {}


def test_a_subscription_that_was_refused_brings_nothing_unless_there_was_one_before() -> None:
    script = Script(tells=True)
    script.connect("pub")
    script.connect("sub")
    script.ask_for("sub")
    script.deny("sub")
    script.tick(5.0)
    script.put("pub", 1)
    script.deliver("sub", "pub", 1)
    assert script.found() == {UNASKED: 1}
    script = begun(tells=True)
    script.ask_for("sub")
    script.deny("sub")
    script.tick(5.0)
    script.crossing(1)
    assert script.found() == {}


def test_a_delayed_message_is_sent_when_it_is_due() -> None:
    script = begun(tells=True)
    script.publish("pub", 1, delay_s=10.0)
    script.unsubscribe("sub")
    script.tick(10.0)
    script.deliver("sub", "pub", 1)
    assert script.found() == {UNASKED: 1}


def test_a_session_that_was_there_before_may_have_any_subscription() -> None:
    script = Script(tells=True)
    script.connect("pub")
    script.ask("sub")
    script.close("sub")
    script.connect("sub", present=True)
    script.subscribe("sub", "other")
    script.put("pub", 1)
    script.deliver("sub", "pub", 1)
    assert script.found() == {}


# No Local.


@pytest.mark.parametrize(("version", "found"), [(5, {ECHOED: 1}), (4, {})])
def test_what_a_client_published_doesnt_come_back_unless_by_an_older_version(
    version: int, found: dict[str, int]
) -> None:
    script = Script()
    script.connect("c")
    script.subscribe("c", no_local=True)
    script.close("c")
    script.connect("c", present=True, version=version)
    script.put("c", 1)
    script.deliver("c", "c", 1)
    assert script.found() == found


@pytest.mark.parametrize(
    ("node", "lasts", "found"), [("b", False, {}), ("a", False, {ECHOED: 1}), ("b", True, {ECHOED: 1})]
)
def test_it_comes_back_to_a_clean_session_at_another_node_than_where_it_was_published(
    node: str, lasts: bool, found: dict[str, int]
) -> None:
    script = Script()
    script.connect("c", lasts=lasts, node="a")
    script.put("c", 1)
    script.close("c")
    script.connect("c", lasts=lasts, node=node, present=lasts)
    script.subscribe("c", no_local=True)
    script.deliver("c", "c", 1)
    assert script.found() == found


def test_it_comes_by_a_subscription_that_says_nothing_of_it() -> None:
    script = Script()
    script.connect("c")
    script.subscribe("c", no_local=True)
    script.subscribe("c", "#")
    script.put("c", 1)
    script.deliver("c", "c", 1)
    assert script.found() == {}


def test_what_is_delayed_comes_back() -> None:
    script = Script()
    script.connect("c")
    script.subscribe("c", no_local=True)
    script.put("c", 1, delay_s=1.0)
    script.tick(2.0)
    script.deliver("c", "c", 1)
    assert script.found() == {}


# Identifiers.


def overlapping() -> Script:
    script = begun(tells=True)
    script.subscribe("sub", "#")
    script.put("pub", 1)
    script.deliver("sub", "pub", 1, filters=("t", "#"))
    script.put("pub", 2)
    return script


def test_a_message_names_all_subscriptions_that_matched_it() -> None:
    script = overlapping()
    script.deliver("sub", "pub", 2, filters=("#", "t"))
    assert script.found() == {}
    script = overlapping()
    script.deliver("sub", "pub", 2, filters=("t",))
    assert script.found() == {FILTERS: 1}


def test_it_names_none_that_its_client_hasnt() -> None:
    script = overlapping()
    script.deliver("sub", "pub", 2, filters=("t", "#", "?9"))
    assert script.found() == {FILTERS: 1}


def test_a_subscription_that_came_or_went_meanwhile_may_be_named() -> None:
    script = overlapping()
    script.unsubscribe("sub", "#")
    script.deliver("sub", "pub", 2, filters=("t",))
    script.subscribe("sub", "+")
    script.crossing(3)
    assert script.found() == {}


def test_what_is_retained_names_its_own() -> None:
    script = overlapping()
    script.deliver("sub", "pub", 2)
    script.put("pub", 3, retain=True)
    script.deliver("sub", "pub", 3)
    script.deliver("sub", "pub", 3, retained=True, filters=("#",))
    assert script.found() == {}


def test_what_a_group_brings_names_the_group() -> None:
    script = overlapping()
    script.subscribe("sub", "$share/g/t")
    script.put("pub", 3)
    script.deliver("sub", "pub", 3, filters=("$share/g/t",))
    script.deliver("sub", "pub", 3, filters=("#", "t"))
    script.deliver("sub", "pub", 2)
    assert script.found() == {}


# What a node forgot.


@pytest.mark.parametrize(
    ("is_missed", "denied", "found"), [(True, "x", {FORGOTTEN: 1}), (True, "t", {}), (False, "x", {})]
)
def test_who_gives_up_what_it_has_had_it_unless_a_rule_may_have_ended_it(
    is_missed: bool, denied: str, found: dict[str, int]
) -> None:
    script = begun(tells=True)
    script.events.append(ChangeAsked(script.tick(), "deny", denied))
    script.unsubscribe("sub", is_missed=is_missed)
    assert script.found() == found
