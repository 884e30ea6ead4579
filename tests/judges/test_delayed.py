"""The judge of delayed messages: they come when they are due, and in that order."""

from __future__ import annotations

import pytest

from judges.judge import DELAYED_ORDER, EARLY, Rules
from judges.made_up import ONE_CORE, begun


def test_a_delayed_message_comes_when_it_is_due() -> None:
    script = begun()
    script.put("pub", 1, delay_s=3.0)
    script.tick(3.0)
    script.deliver("sub", "pub", 1)
    assert script.found() == {}


@pytest.mark.parametrize(
    ("kind", "rules", "found"),
    [("kill core", ONE_CORE, {EARLY: 1}), ("clock core", Rules(), {EARLY: 1}), ("clock core", ONE_CORE, {})],
)
def test_it_comes_no_sooner_unless_the_time_is_wrong(kind: str, rules: Rules, found: dict[str, int]) -> None:
    script = begun()
    script.put("pub", 1, delay_s=3.0)
    script.fault(kind, "a")
    script.deliver("sub", "pub", 1)
    assert script.found(rules) == found


def test_what_is_due_first_comes_first() -> None:
    script = begun()
    script.put("pub", 1, delay_s=9.0)
    script.put("pub", 2, delay_s=3.0)
    script.put("pub", 3)
    script.deliver("sub", "pub", 3)
    script.tick(10.0)
    script.deliver("sub", "pub", 2)
    script.deliver("sub", "pub", 1)
    assert script.found() == {}
    script.put("pub", 4, delay_s=9.0)
    script.put("pub", 5, delay_s=3.0)
    script.tick(10.0)
    script.deliver("sub", "pub", 4)
    script.deliver("sub", "pub", 5)
    assert script.found() == {DELAYED_ORDER: 1}


def test_what_is_due_at_the_same_time_comes_in_the_order_of_its_publishing() -> None:
    script = begun()
    for number in range(1, 4):
        script.put("pub", number, delay_s=3.0)
    script.tick(3.0)
    for number in (1, 3, 2):
        script.deliver("sub", "pub", number)
    assert script.found() == {DELAYED_ORDER: 1}


def test_what_is_due_at_about_the_same_time_by_other_delays_comes_in_any_order() -> None:
    script = begun()
    script.put("pub", 1, delay_s=3.0)
    script.put("pub", 2, delay_s=3.1)
    script.tick(3.2)
    script.deliver("sub", "pub", 2)
    script.deliver("sub", "pub", 1)
    assert script.found() == {}


def test_what_a_fault_held_up_is_passed() -> None:
    script = begun()
    script.put("pub", 1, delay_s=9.0)
    script.put("pub", 2, delay_s=3.0)
    script.fault("kill leader", "a")
    script.tick(10.0)
    script.deliver("sub", "pub", 1)
    script.deliver("sub", "pub", 2)
    assert script.found() == {}


def test_what_came_before_may_come_again_at_any_time() -> None:
    script = begun()
    script.put("pub", 1, delay_s=1.0)
    script.put("pub", 2, delay_s=5.0)
    script.tick(6.0)
    script.deliver("sub", "pub", 1)
    script.deliver("sub", "pub", 2)
    script.close("sub")
    script.connect("sub", present=True)
    script.deliver("sub", "pub", 1, dup=True)
    assert script.found() == {}
