"""The judge of Retain As Published, and of Subscription Identifiers."""

from __future__ import annotations

import pytest

from judges.judge import OUTDATED, WRONG_RETAIN
from judges.made_up import Script

WRONG = {WRONG_RETAIN: 1}


def subscribed(*as_published: bool) -> Script:
    """To as many filters, of which none brings what is retained."""
    script = Script(tells=True)
    script.connect("pub")
    script.connect("sub")
    for filter, each in zip(("t", "#"), as_published, strict=False):
        script.subscribe("sub", filter, handling=2, as_published=each)
    script.tick(1.0)
    return script


@pytest.mark.parametrize(
    ("as_published", "published", "comes", "found"),
    [
        ((True,), True, True, {}),
        ((True,), False, False, {}),
        ((True,), True, False, WRONG),
        ((True,), False, True, WRONG),
        ((False,), True, False, {}),
        ((False, True), True, True, {}),
        ((False, True), True, False, WRONG),
    ],
)
def test_retain_is_as_published_by_a_subscription_that_asks_for_it(
    as_published: tuple[bool, ...], published: bool, comes: bool, found: dict[str, int]
) -> None:
    script = subscribed(*as_published)
    script.put("pub", 1, retain=published)
    script.deliver("sub", "pub", 1, retained=comes)
    assert script.found() == found


def test_who_asked_for_it_before_does_not_get_it_any_more() -> None:
    for comes, found in ((False, {}), (True, WRONG)):
        script = subscribed(True)
        script.subscribe("sub", handling=2)
        script.tick(1.0)
        script.put("pub", 1, retain=True)
        script.deliver("sub", "pub", 1, retained=comes)
        assert script.found() == found


@pytest.mark.parametrize("group", ["$share/g/t", "$share/g/+"])
def test_so_it_is_for_a_member_of_a_group(group: str) -> None:
    script = Script(tells=True)
    script.connect("pub")
    script.connect("sub")
    script.subscribe("sub", group, handling=2, as_published=True)
    script.tick(1.0)
    for number, comes in ((1, True), (2, False)):
        script.put("pub", number, retain=True)
        script.deliver("sub", "pub", number, retained=comes)
    assert script.found() == WRONG


def test_what_comes_as_published_is_no_retained_message_that_nobody_asked_for() -> None:
    script = subscribed(True)
    for number in range(1, 4):
        script.tick(20.0)
        script.put("pub", number, retain=True)
        script.deliver("sub", "pub", number, retained=True)
    assert script.found() == {}


def test_who_asks_otherwise_meanwhile_may_get_either() -> None:
    for comes in (True, False):
        script = subscribed(True)
        script.publish("pub", 1, retain=True)
        script.ask_for("sub", "t", 2, 2, False, 0)
        script.deliver("sub", "pub", 1, retained=comes)
        script.acknowledge("pub", 1)
        assert script.found() == {}


@pytest.mark.parametrize("handling", [0, 1])
def test_what_was_there_before_its_client_asked_comes_as_retained(handling: int) -> None:
    for comes, found in ((True, {}), (False, WRONG)):
        script = Script(tells=True)
        script.connect("pub")
        script.connect("sub")
        script.put("pub", 1, retain=True)
        script.tick(5.0)
        script.subscribe("sub", handling=handling, as_published=True)
        script.deliver("sub", "pub", 1, retained=comes)
        assert script.found() == found


def named(*identifiers: int, version: int = 5, between: bool = False) -> dict[str, int]:
    """What comes by a subscription whose identifier was 1, and is 2; `between`: it was published before that."""
    script = Script(tells=True)
    script.connect("pub")
    script.connect("sub", version=version)
    script.subscribe("sub", identifier=1)
    script.tick(1.0)
    if between:
        script.publish("pub", 1)
    script.subscribe("sub", identifier=2)
    if not between:
        script.publish("pub", 1)
    script.deliver("sub", "pub", 1, filters=("t",) * len(identifiers), identifiers=identifiers)
    script.acknowledge("pub", 1)
    return script.found()


@pytest.mark.parametrize(
    ("identifiers", "found"), [((2,), {}), ((1,), {OUTDATED: 1}), ((3,), {OUTDATED: 1}), ((1, 2), {OUTDATED: 1})]
)
def test_what_comes_names_the_identifier_that_was_given_last(
    identifiers: tuple[int, ...], found: dict[str, int]
) -> None:
    assert named(*identifiers) == found


@pytest.mark.parametrize("identifier", [1, 2])
def test_what_was_published_before_may_name_either(identifier: int) -> None:
    assert named(identifier, between=True) == {}


def test_it_names_those_of_all_filters_that_match() -> None:
    for filters, identifiers, found in ((("t", "#"), (1, 2), {}), (("t", "#"), (1, 1), {OUTDATED: 1})):
        script = Script(tells=True)
        script.connect("pub")
        script.connect("sub")
        script.subscribe("sub", "t", identifier=1)
        script.subscribe("sub", "#", identifier=2)
        script.tick(1.0)
        script.put("pub", 1)
        script.deliver("sub", "pub", 1, filters=filters, identifiers=identifiers)
        assert script.found() == found
