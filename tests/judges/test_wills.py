"""The judge of wills: each comes once, if there is a reason, and not before."""

from __future__ import annotations

from typing import Any

import pytest

from judges.judge import WILL_LOST, WILL_TWICE, WILL_UNDUE, Rules
from judges.made_up import Script
from load.history import RedisLost, Will


def alive(*, delay_s: float = 0.0, qos: int = 1, lasts: bool = True, **asked: Any) -> Script:
    """A client with a will, and a subscriber that wants to hear it."""
    script = Script()
    script.connect("sub", node="b")
    script.subscribe("sub", "gone")
    script.tick(5.0)
    will = Will(1, "gone", qos, delay_s=delay_s)
    script.connect("c", will=will, lasts=lasts, clean_start=not lasts, **asked)
    script.tick(5.0)
    return script


def later(script: Script, *, delivered: int = 0, after_s: float = 20.0, **more: Any) -> dict[str, int]:
    """What is found if the will comes so often, and some time passes."""
    for _ in range(delivered):
        script.deliver("sub", "c!", 1, "gone", **more)
    script.tick(after_s)
    script.connect("somebody")
    return script.found()


# Whether it is due.


@pytest.mark.parametrize("lasts", [True, False])
@pytest.mark.parametrize("by_server", [True, False])
def test_a_connection_that_breaks_leaves_a_will(lasts: bool, by_server: bool) -> None:
    for delivered, found in ((1, {}), (0, {WILL_LOST: 1})):
        script = alive(lasts=lasts)
        script.close("c", by_server=by_server)
        assert later(script, delivered=delivered) == found


def test_a_disconnect_takes_it_back_unless_it_says_otherwise() -> None:
    for with_will in (True, False):
        for delivered in (0, 1):
            script = alive()
            script.disconnect("c", with_will=with_will)
            found = {} if delivered == with_will else {WILL_LOST: 1} if with_will else {WILL_UNDUE: 1}
            assert later(script, delivered=delivered) == found


def test_a_connection_that_is_there_leaves_none() -> None:
    assert later(alive()) == {}
    assert later(alive(), delivered=1) == {WILL_UNDUE: 1}


def test_a_disconnect_may_not_have_been_heard_and_a_node_taken_for_dead() -> None:
    script = alive()
    script.fault("isolate", "a")
    script.disconnect("c")
    assert later(script, delivered=1) == {}
    script = alive()
    script.fault("isolate", "a")
    assert later(script, delivered=1) == {}


def test_a_disconnect_behind_a_connection_that_took_over_comes_too_late() -> None:
    for delivered in (0, 1):
        script = alive()
        script.connect("c", present=True, node="b")
        script.disconnect("c", connection=2)
        assert later(script, delivered=delivered) == {}


def test_who_takes_over_publishes_the_will_of_the_older_connection() -> None:
    for delivered, found in ((1, {}), (0, {WILL_LOST: 1})):
        script = alive()
        script.ask("c", node="b")
        script.close("c", 2, by_server=True)
        script.told("c", 3, present=True)
        assert later(script, delivered=delivered) == found


def test_nobody_knows_of_connections_that_came_at_once() -> None:
    for delivered in (0, 1):
        script = Script()
        script.connect("sub", node="b")
        script.subscribe("sub", "gone")
        script.tick(5.0)
        one = script.ask("c", will=Will(1, "gone", 1))
        other = script.ask("c", will=Will(2, "gone", 1))
        script.told("c", other, present=False)
        script.told("c", one, present=True)
        script.close("c", one, by_server=True)
        assert later(script, delivered=delivered) == {}


def test_who_gave_up_waiting_may_yet_take_over_the_next_connection_of_its_client() -> None:
    for delivered in (0, 1):
        script = Script()
        script.connect("sub")
        script.subscribe("sub", "gone")
        script.tick(5.0)
        script.ask("c", will=Will(2, "gone", 1))
        script.close("c")
        other = script.ask("c", node="b", will=Will(1, "gone", 1))
        script.tick(1.0)
        for _ in range(delivered):
            script.deliver("sub", "c!", 1, "gone")
        script.told("c", other, present=False)
        script.close("c", other, by_server=True)
        assert later(script) == {}


def test_who_was_never_answered_leaves_what_nobody_knows() -> None:
    for delivered in (0, 1):
        script = Script()
        script.connect("sub")
        script.subscribe("sub", "gone")
        script.ask("c", will=Will(1, "gone", 1))
        script.close("c")
        assert later(script, delivered=delivered) == {}


# When it is due.


@pytest.mark.parametrize(
    ("delay_s", "expiry_s", "waits_s", "found"),
    [
        (10.0, 60.0, 10.0, {}),
        (10.0, 60.0, 5.0, {WILL_UNDUE: 1}),
        (10.0, 3.0, 3.0, {}),
        (10.0, 3.0, 1.0, {WILL_UNDUE: 1}),
    ],
)
def test_it_comes_when_its_delay_or_its_session_is_over(
    delay_s: float, expiry_s: float, waits_s: float, found: dict[str, int]
) -> None:
    script = alive(delay_s=delay_s, expiry_s=expiry_s)
    script.close("c")
    script.tick(waits_s)
    assert later(script, delivered=1) == found


def test_a_clean_session_has_no_delay() -> None:
    script = alive(delay_s=10.0, lasts=False)
    script.close("c")
    assert later(script, delivered=1) == {}


def test_who_comes_back_in_time_leaves_it_unsaid() -> None:
    for delivered, found in ((0, {}), (1, {WILL_UNDUE: 1})):
        script = alive(delay_s=10.0)
        script.close("c")
        script.tick(5.0)
        script.connect("c", present=True)
        script.tick(10.0)
        assert later(script, delivered=delivered) == found


def test_who_comes_back_late_finds_it_said() -> None:
    for delivered, found in ((1, {}), (0, {WILL_LOST: 1})):
        script = alive(delay_s=5.0)
        script.close("c")
        script.tick(10.0)
        script.connect("c", present=True)
        assert later(script, delivered=delivered) == found


def test_who_ends_the_session_publishes_it_at_once() -> None:
    for delivered, found in ((1, {}), (0, {WILL_LOST: 1})):
        script = alive(delay_s=60.0)
        script.close("c")
        script.tick(5.0)
        script.connect("c", clean_start=True)
        assert later(script, delivered=delivered, after_s=90.0) == found


def test_who_tried_to_come_back_and_got_no_answer_may_have_come() -> None:
    for delivered in (0, 1):
        script = alive(delay_s=10.0)
        script.close("c")
        script.ask("c")
        script.close("c")
        script.tick(10.0)
        assert later(script, delivered=delivered, after_s=60.0) == {}


@pytest.mark.parametrize(("fault", "found"), [("stall redis", {WILL_LOST: 1}), ("kill core", {})])
@pytest.mark.parametrize("came", [0, 1, 2])
def test_who_left_before_it_was_answered_has_one_of_its_wills(came: int, fault: str, found: dict[str, int]) -> None:
    script = alive(delay_s=5.0)
    with script.during(fault, fault.split()[1]):
        script.close("c")
        script.ask("c", will=Will(2, "gone", 1, delay_s=5.0))
        script.tick(1.0)
        script.close("c")
        script.tick(10.0)
    if came:
        script.deliver("sub", "c!", came, "gone")
    assert later(script, after_s=60.0) == ({} if came else found)


def test_it_has_time_to_come() -> None:
    script = alive()
    script.close("c")
    assert later(script, after_s=2.0) == {}


# To whom.


def test_it_comes_once() -> None:
    for qos in (0, 1, 2):
        script = alive(qos=qos)
        script.close("c")
        assert later(script, delivered=2, qos=qos) == {WILL_TWICE: 1}


def test_at_qos_1_it_is_sent_again_to_who_came_back() -> None:
    for dup, found in ((True, {}), (False, {WILL_TWICE: 1})):
        script = alive()
        script.close("c")
        script.deliver("sub", "c!", 1, "gone")
        script.close("sub")
        script.connect("sub", present=True)
        assert later(script, delivered=1, dup=dup) == found


def test_it_is_promised_to_who_was_there_before_and_stays() -> None:
    script = alive()
    for name, qos in (("unsubscribes", 1), ("takes none", 0)):
        script.connect(name)
        script.subscribe(name, "#", qos)
    script.tick(2.0)
    script.close("c")
    script.connect("late")
    script.subscribe("late", "#")
    script.unsubscribe("unsubscribes", "#")
    assert later(script, delivered=1) == {}


def test_a_will_of_qos_0_may_be_lost_and_so_may_what_overflows() -> None:
    script = alive(qos=0)
    script.close("c")
    assert later(script) == {}
    script = alive()
    script.close("sub")
    script.close("c")
    for number in range(1, 5):
        script.put("somebody else", number, "gone") if number > 1 else script.connect("somebody else")
    script.connect("sub", present=True)
    for number in (3, 4):
        script.deliver("sub", "somebody else", number, "gone")
    script.tick(20.0)
    script.connect("somebody")
    assert script.found(Rules(max_mqueue_len=2)) == {}


@pytest.mark.parametrize(
    ("before", "behind_s", "found"),
    [("core", 0.0, {}), ("", 4.0, {}), ("", 8.0, {WILL_LOST: 1}), ("", 0.0, {WILL_LOST: 1})],
)
def test_a_clean_session_may_take_it_with_its_node_and_its_owner(
    before: str, behind_s: float, found: dict[str, int]
) -> None:
    """Another node fails before its own, or so long behind that."""
    script = alive(lasts=False)
    script.tick(20.0)
    if before:
        script.fault("kill", before)
    script.fault("kill", "a")
    script.close("c", by_server=True)
    if behind_s:
        script.tick(behind_s)
        script.fault("kill", "core")
    assert later(script, after_s=60.0) == found
    if not before:
        assert script.found(Rules(is_one_release=False)) == {}


def test_that_of_a_durable_session_survives_its_node_but_not_redis() -> None:
    for is_lost, found in ((True, {}), (False, {WILL_LOST: 1})):
        script = alive()
        script.tick(20.0)
        script.fault("kill replicant", "a")
        script.close("c", by_server=True)
        if is_lost:
            script.events.append(RedisLost(script.tick()))
        assert later(script, after_s=60.0) == found


def test_who_was_admitted_amid_a_fault_and_never_came_back_may_count_as_there() -> None:
    for comes_back, found in ((False, {}), (True, {WILL_LOST: 1})):
        script = Script()
        script.connect("sub", node="b")
        script.subscribe("sub", "gone")
        script.tick(5.0)
        script.fault("cut", "a")
        script.connect("c", will=Will(1, "gone", 1))
        script.close("c")
        script.tick(60.0)
        if comes_back:
            script.connect("c", present=True)
        assert later(script, after_s=60.0) == found


def test_what_was_retained_of_a_will_came_of_it() -> None:
    script = alive()
    script.close("c")
    script.deliver("sub", "c!", 1, "gone")
    assert later(script, delivered=2, retained=True) == {}
    assert later(alive(), delivered=1, retained=True) == {WILL_UNDUE: 1}


def test_what_was_lost_before_all_left_is_found_all_the_same() -> None:
    for waits_s, found in ((60.0, {WILL_LOST: 1}), (5.0, {})):
        script = alive()
        script.tick(20.0)
        script.close("c")
        script.tick(waits_s)
        script.connect("sub", lasts=False, clean_start=True)
        script.close("sub", 1, by_server=True)
        assert later(script) == found


# Sent away.


@pytest.mark.parametrize("lasts", [True, False])
@pytest.mark.parametrize("back_after_s", [5.0, 40.0])
def test_who_is_sent_to_other_nodes_and_is_back_leaves_none(lasts: bool, back_after_s: float) -> None:
    for delivered in (0, 1):
        script = alive(lasts=lasts)
        with script.during("drain replicant", "a"):
            script.close("c", by_server=True, reason=0x9C)
        if back_after_s > 30.0 and delivered:
            script.tick(32.0)
            script.deliver("sub", "c!", 1, "gone")
        script.tick(back_after_s)
        script.connect("c", present=lasts, clean_start=not lasts, lasts=lasts, node="b")
        if back_after_s < 30.0:
            assert later(script, delivered=delivered, after_s=60.0) == ({WILL_UNDUE: 1} if delivered else {})
        else:
            assert later(script, after_s=20.0) == ({} if delivered else {WILL_LOST: 1})


def test_who_stays_away_leaves_one_when_it_was_held_back_for_long_enough() -> None:
    for waits_s, found in ((5.0, {WILL_UNDUE: 1}), (31.0, {})):
        script = alive()
        with script.during("drain replicant", "a"):
            script.close("c", by_server=True, reason=0x9C)
        script.tick(waits_s)
        assert later(script, delivered=1, after_s=40.0) == found


@pytest.mark.parametrize("fault", ["kill core", "cut replicant core"])
def test_beside_other_faults_nobody_knows_whether_it_was_held_back(fault: str) -> None:
    for delivered in (0, 1):
        script = alive()
        with script.during(fault, "b"), script.during("drain replicant", "a"):
            script.close("c", by_server=True, reason=0x9C)
        script.connect("c", present=True, node="b")
        assert later(script, delivered=delivered, after_s=60.0) == {}


def test_before_5_0_nobody_is_told_that_its_node_drains() -> None:
    for delivered in (0, 1):
        script = alive(version=4)
        with script.during("drain replicant", "a"):
            script.close("c", by_server=True)
        script.connect("c", present=True, version=4, node="b")
        assert later(script, delivered=delivered, after_s=60.0) == {}
