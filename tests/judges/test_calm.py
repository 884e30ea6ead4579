"""The judge of what nodes do while nothing disturbs them."""

from __future__ import annotations

import pytest

from judges.judge import LATE_IN_CALM, LOST_IN_CALM, REFUSED_IN_CALM, judge
from judges.made_up import Script, begun
from load.history import ChangeAsked


def in_calm(*, fault_before_s: float = 100.0) -> Script:
    """A publisher, a subscriber, and a fault so long ago."""
    script = begun(lasts=False)
    script.fault("kill core", "core-1")
    script.tick(fault_before_s)
    return script


@pytest.mark.parametrize(("fault_before_s", "found"), [(100.0, {LOST_IN_CALM: 1}), (3.0, {})])
def test_a_message_of_qos_0_is_lost_by_nobody_but_faults(fault_before_s: float, found: dict[str, int]) -> None:
    script = in_calm(fault_before_s=fault_before_s)
    script.publish("pub", 1, qos=0)
    script.tick(20.0)
    script.publish("pub", 2, qos=0)
    script.deliver("sub", "pub", 2, qos=0)
    assert script.found() == found


def test_so_is_what_comes_by_a_subscription_at_qos_0() -> None:
    script = in_calm()
    script.connect("at0", lasts=False)
    script.subscribe("at0", "t", 0)
    script.tick(2.0)
    script.crossing(1)
    script.tick(20.0)
    script.publish("pub", 2, "other")
    assert script.found() == {LOST_IN_CALM: 1}


def test_of_who_comes_and_goes_nobody_can_say() -> None:
    script = in_calm()
    script.publish("pub", 1, qos=0)
    script.close("sub")
    script.connect("sub", lasts=False)
    script.subscribe("sub")
    script.publish("pub", 2, qos=0)
    script.tick(2.0)
    script.publish("pub", 3, qos=0)
    script.close("pub")
    script.tick(20.0)
    assert script.found() == {}


def test_what_is_refused_while_nothing_is_broken_is_found() -> None:
    for fault_before_s, found in ((100.0, {REFUSED_IN_CALM: 3}), (3.0, {})):
        script = in_calm(fault_before_s=fault_before_s)
        script.ask("new")
        script.turn_away("new")
        script.ask_for("sub", "other")
        script.deny("sub", "other")
        script.publish("pub", 1)
        script.refuse("pub", 1)
        assert judge(script.events).by_kind() == found


def test_a_ban_or_a_rival_or_a_full_group_is_a_reason() -> None:
    script = in_calm()
    script.events.append(ChangeAsked(script.tick(), "ban", "new"))
    script.ask("new")
    script.turn_away("new", 0x8A)
    script.ask("twice")
    script.ask("twice", node="b")
    script.turn_away("twice")
    script.ask_for("sub", "$exclusive/t")
    script.deny("sub", "$exclusive/t")
    script.subscribe("sub", "$share/g/jobs", 1)
    script.publish("pub", 1, "jobs")
    script.refuse("pub", 1, 0x97)
    assert judge(script.events).by_kind() == {}


def test_what_is_delayed_at_qos_0_comes_when_it_is_due() -> None:
    for is_there, found in ((True, {}), (False, {LOST_IN_CALM: 1})):
        script = in_calm()
        script.publish("pub", 1, qos=0, delay_s=2.0)
        script.tick(2.0)
        if is_there:
            script.deliver("sub", "pub", 1, qos=0)
        script.tick(20.0)
        script.crossing(2)
        assert script.found() == found


def test_who_leaves_before_it_is_due_may_miss_it() -> None:
    script = in_calm()
    script.publish("pub", 1, qos=0, delay_s=2.0)
    script.tick(1.0)
    script.close("sub")
    script.tick(20.0)
    script.publish("pub", 2, "other")
    assert script.found() == {}


@pytest.mark.parametrize(
    ("takes_s", "fault_before_s", "held_s", "found"),
    [(0.5, 100.0, 0.0, {}), (2.0, 100.0, 0.0, {LATE_IN_CALM: 1}), (2.0, 3.0, 0.0, {}), (2.0, 100.0, 1.5, {})],
)
def test_what_is_sent_in_calm_comes_at_once(
    takes_s: float, fault_before_s: float, held_s: float, found: dict[str, int]
) -> None:
    script = in_calm(fault_before_s=fault_before_s)
    script.put("pub", 1)
    script.tick(takes_s)
    script.deliver("sub", "pub", 1, held_s=held_s)
    script.tick(20.0)
    script.crossing(2)
    assert judge(script.events).by_kind() == found


def test_what_is_delayed_comes_when_it_is_due() -> None:
    for takes_s, found in ((2.1, {}), (4.0, {LATE_IN_CALM: 1})):
        script = in_calm()
        script.put("pub", 1, delay_s=2.0)
        script.tick(takes_s)
        script.deliver("sub", "pub", 1)
        script.tick(20.0)
        script.crossing(2)
        assert judge(script.events).by_kind() == found


def test_what_another_member_left_may_come_later() -> None:
    for stays, found in ((True, {LATE_IN_CALM: 1}), (False, {})):
        script = in_calm()
        for member in ("ann", "bob"):
            script.connect(member, lasts=False)
            script.subscribe(member, "$share/g/jobs", 1)
        script.tick(2.0)
        script.put("pub", 1, "jobs")
        script.tick(2.0)
        if not stays:
            script.close("ann")
        script.deliver("bob", "pub", 1, "jobs")
        script.tick(20.0)
        script.crossing(2)
        assert judge(script.events).by_kind() == found
