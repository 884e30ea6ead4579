"""The judge of shared subscriptions: one member gets each message, and none is lost while there is a member."""

from __future__ import annotations

from typing import Any, Final

import pytest

from judges.judge import SHARED_LOST, SHARED_TWICE, Rules
from judges.made_up import Script
from load.history import FaultBegan, FaultEnded, RedisLost

GROUP: Final = "$share/g/t"


def group(*, qos: int = 2, lasts: bool = True) -> Script:
    """A publisher, and two members: `stays` lasts, `goes` may."""
    script = Script()
    script.connect("pub")
    script.connect("stays")
    script.connect("goes", lasts=lasts, node="b")
    script.subscribe("stays", GROUP, qos)
    script.subscribe("goes", GROUP, qos)
    script.tick(1.0)
    return script


def test_each_message_comes_to_one_member() -> None:
    script = group()
    for number in range(1, 9):
        script.put("pub", number, qos=1 + number % 2)
        script.deliver(("stays", "goes")[number % 3 == 0], "pub", number, qos=1 + number % 2)
    assert script.found() == {}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_it_comes_to_no_second_member_nor_twice_to_one(qos: int) -> None:
    for second in ("stays", "goes"):
        script = group()
        script.publish("pub", 1, qos=qos)
        script.deliver("goes", "pub", 1, qos=qos)
        script.deliver(second, "pub", 1, qos=qos)
        assert script.found() == {SHARED_TWICE: 1}


def sent_again(script: Script, qos: int, *, ends: bool = False) -> Script:
    """To another member; `ends`: with the session of the first one."""
    script.publish("pub", 1, qos=qos)
    script.deliver("goes", "pub", 1, qos=qos)
    script.close("pub")
    if ends:
        script.fault("kill replicant", "b")
        script.close("goes", by_server=True)
    script.connect("pub", present=True)
    script.publish("pub", 1, qos=qos, again=True)
    script.deliver("stays", "pub", 1, qos=qos)
    return script


@pytest.mark.parametrize(
    ("qos", "is_one_release", "found"), [(1, True, {}), (2, True, {SHARED_TWICE: 1}), (2, False, {})]
)
def test_at_qos_1_it_may_where_its_publisher_sent_it_again(
    qos: int, is_one_release: bool, found: dict[str, int]
) -> None:
    assert sent_again(group(), qos).found(Rules(is_one_release=is_one_release)) == found


@pytest.mark.parametrize(("lasts", "found"), [(False, {}), (True, {SHARED_TWICE: 1})])
def test_sent_again_at_qos_2_it_comes_to_another_where_who_had_it_ended_with_its_node(
    lasts: bool, found: dict[str, int]
) -> None:
    assert sent_again(group(lasts=lasts), 2, ends=True).found() == found


@pytest.mark.parametrize(("qos", "found"), [(1, {}), (2, {SHARED_TWICE: 1})])
def test_at_qos_1_it_comes_to_another_where_the_session_of_who_had_it_ended(qos: int, found: dict[str, int]) -> None:
    script = group(lasts=False)
    script.put("pub", 1, qos=qos)
    script.deliver("goes", "pub", 1, qos=qos)
    script.close("goes")
    script.deliver("stays", "pub", 1, qos=qos)
    assert script.found() == found


@pytest.mark.parametrize(
    ("node", "lasts", "ends", "found"),
    [
        ("b", False, True, {}),
        ("a", False, True, {SHARED_TWICE: 1}),
        ("b", True, True, {SHARED_TWICE: 1}),
        ("b", False, False, {SHARED_TWICE: 1}),
    ],
)
def test_at_qos_2_it_comes_to_another_where_the_node_of_who_had_it_could_not_say_so(
    node: str, lasts: bool, ends: bool, found: dict[str, int]
) -> None:
    script = group(lasts=lasts)
    script.events.append(FaultBegan(script.tick(), "isolate replicant", (node,)))
    script.put("pub", 1, qos=2)
    script.deliver("goes", "pub", 1, qos=2)
    script.events.append(FaultEnded(script.tick(), "isolate replicant", (node,)))
    if ends:
        script.close("goes", by_server=True)
    script.deliver("stays", "pub", 1, qos=2)
    assert script.found() == found


@pytest.mark.parametrize(
    ("kind", "node", "lasts", "seconds", "found"),
    [
        ("isolate replicant", "b", False, 3.0, {}),
        ("cut replicant core", "b", False, 3.0, {}),
        ("stop replicant", "b", False, 3.0, {SHARED_TWICE: 1}),
        ("isolate replicant", "a", False, 3.0, {SHARED_TWICE: 1}),
        ("isolate replicant", "b", True, 3.0, {SHARED_TWICE: 1}),
        ("isolate replicant", "b", False, 1.0, {SHARED_TWICE: 1}),
    ],
)
@pytest.mark.parametrize("qos", [1, 2])
def test_it_comes_twice_where_a_node_with_members_gave_it_away_and_was_purged_unheard(
    qos: int, kind: str, node: str, lasts: bool, seconds: float, found: dict[str, int]
) -> None:
    script = group(lasts=lasts)
    script.connect("also", node="a")
    script.subscribe("also", GROUP)
    script.tick(10.0)
    script.put("pub", 1, qos=qos)
    script.events.append(FaultBegan(script.tick(), kind, (node,)))
    script.events.append(FaultEnded(script.tick(seconds), kind, (node,)))
    script.deliver("stays", "pub", 1, qos=qos)
    script.deliver("also", "pub", 1, qos=qos)
    assert script.found() == found


@pytest.mark.parametrize(
    ("node", "lasts", "again_at", "found"),
    [
        ("b", False, "c", {}),
        ("b", False, "a", {SHARED_TWICE: 1}),
        ("a", False, "c", {SHARED_TWICE: 1}),
        ("b", True, "c", {SHARED_TWICE: 1}),
    ],
)
def test_sent_again_elsewhere_it_may_come_twice_where_a_node_with_members_ended_meanwhile(
    node: str, lasts: bool, again_at: str, found: dict[str, int]
) -> None:
    script = group(lasts=lasts)
    script.connect("also", node="a")
    script.subscribe("also", GROUP)
    script.tick(10.0)
    script.publish("pub", 1, qos=2)
    script.fault("kill replicant", node)
    script.deliver("stays", "pub", 1, qos=2)
    script.close("pub")
    script.connect("pub", present=True, node=again_at)
    script.publish("pub", 1, qos=2, again=True)
    script.deliver("also", "pub", 1, qos=2)
    assert script.found() == found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, {}),
        ({"is_sent_again": False}, {SHARED_TWICE: 1}),
        ({"kind": "kill replicant"}, {SHARED_TWICE: 1}),
        ({"node": "a"}, {SHARED_TWICE: 1}),
        ({"seconds": 1.0}, {SHARED_TWICE: 1}),
        ({"member_qos": 2}, {SHARED_TWICE: 1}),
        ({"ends": False}, {SHARED_TWICE: 1}),
        ({"qos": 2}, {SHARED_TWICE: 1}),
        ({"third": 1}, {SHARED_TWICE: 1}),
    ],
)
def test_sent_again_it_comes_once_more_at_qos_1_where_a_node_stood_still_that_had_it_in_flight_to_a_member_at_qos_1(
    change: dict[str, object], found: dict[str, int]
) -> None:
    case: dict[str, Any] = {"kind": "stop replicant", "node": "b", "seconds": 6.0, "is_sent_again": True}
    case |= {"member_qos": 1, "ends": True, "qos": 1, "third": 0} | change
    script = group()
    script.connect("full", lasts=False, node="b")
    script.subscribe("full", GROUP, case["member_qos"])
    script.tick(10.0)
    script.publish("pub", 1, qos=2)
    script.events.append(FaultBegan(script.tick(), case["kind"], (case["node"],)))
    if case["is_sent_again"]:
        script.close("pub")
        script.connect("pub", present=True)
        script.publish("pub", 1, qos=2, again=True)
    if case["ends"]:
        script.close("full")
    script.deliver("stays", "pub", 1, qos=2)
    script.events.append(FaultEnded(script.tick(case["seconds"]), case["kind"], (case["node"],)))
    script.deliver("goes", "pub", 1, qos=case["qos"])
    if case["third"]:
        script.deliver("stays", "pub", 1, qos=case["third"])
    assert script.found() == found


def test_at_qos_1_it_comes_again_to_a_member_that_came_back() -> None:
    script = group()
    script.put("pub", 1)
    script.deliver("goes", "pub", 1)
    script.close("goes")
    script.connect("goes", present=True)
    script.deliver("goes", "pub", 1, dup=True)
    assert script.found() == {}


def test_a_delayed_message_may_be_published_by_two_leaders() -> None:
    for fault, found in ((True, {}), (False, {SHARED_TWICE: 1})):
        script = group()
        script.put("pub", 1, delay_s=1.0)
        script.tick(1.0)
        if fault:
            script.fault("kill leader", "a")
        script.deliver("goes", "pub", 1)
        script.deliver("stays", "pub", 1)
        assert script.found() == found


def test_each_group_gets_a_message_of_its_own() -> None:
    script = group()
    script.subscribe("stays", "$share/h/t")
    script.tick(1.0)
    script.put("pub", 1)
    script.deliver("goes", "pub", 1)
    script.deliver("stays", "pub", 1, filters=("$share/h/t",))
    assert script.found() == {}
    script.deliver("stays", "pub", 1, filters=("$share/h/t",))
    assert script.found() == {SHARED_TWICE: 1}


def test_which_way_a_message_came_that_names_none_of_several_nobody_knows() -> None:
    script = group()
    script.subscribe("stays", "$share/h/t")
    script.tick(1.0)
    script.put("pub", 1)
    script.deliver("stays", "pub", 1)
    script.deliver("stays", "pub", 1)
    assert script.found() == {}


# Lost.


def test_a_message_that_comes_to_nobody_is_lost() -> None:
    script = group()
    script.put("pub", 1)
    assert script.found() == {SHARED_LOST: 1}


def test_what_is_not_acknowledged_or_was_sent_before_there_was_a_member_may_be() -> None:
    script = Script()
    script.connect("pub")
    script.connect("stays")
    script.put("pub", 1)
    script.subscribe("stays", GROUP)
    script.put("pub", 2)
    script.tick(1.0)
    script.publish("pub", 3)
    assert script.found() == {}


def test_without_a_member_that_stays_to_the_end_nothing_is_promised() -> None:
    script = group()
    script.put("pub", 1)
    script.unsubscribe("stays", GROUP)
    script.unsubscribe("goes", GROUP)
    assert script.found() == {}


def test_what_waits_for_a_member_that_is_away_isnt_lost() -> None:
    script = group()
    script.close("goes")
    script.put("pub", 1)
    assert script.found() == {}
    script.connect("goes", present=True)
    script.tick(20.0)
    script.connect("pub", present=True)
    assert script.found() == {SHARED_LOST: 1}


@pytest.mark.parametrize(("fault", "qos", "found"), [(False, 1, {SHARED_LOST: 1}), (False, 2, {}), (True, 1, {})])
def test_what_a_member_had_goes_to_another_unless_a_fault_ended_it_or_at_qos_2(
    fault: bool, qos: int, found: dict[str, int]
) -> None:
    script = group(lasts=False)
    script.put("pub", 1, qos=qos)
    if fault:
        script.fault("kill replicant", "b")
    script.close("goes", by_server=True)
    script.tick(20.0)
    script.connect("pub", present=True)
    assert script.found() == found


def test_what_a_member_had_that_ended_long_before_or_after_isnt_excused() -> None:
    script = group(lasts=False)
    script.fault("kill replicant", "b")
    script.close("goes", by_server=True)
    script.tick(30.0)
    script.put("pub", 1)
    script.tick(30.0)
    script.connect("late", lasts=False)
    script.subscribe("late", GROUP)
    script.fault("kill replicant", "b")
    script.close("late", by_server=True)
    script.tick(20.0)
    script.connect("pub", present=True)
    assert script.found() == {SHARED_LOST: 1}


def test_what_may_expire_and_what_a_member_takes_at_qos_0_may_be_lost() -> None:
    script = group()
    script.put("pub", 1, expiry_s=1.0)
    assert script.found() == {}
    script = group()
    script.subscribe("goes", GROUP, 0)
    script.tick(1.0)
    script.put("pub", 1)
    assert script.found() == {}


def test_the_oldest_of_more_than_may_wait_and_what_redis_lost_are_gone() -> None:
    for rules, is_lost in ((Rules(max_mqueue_len=2), False), (Rules(), True)):
        script = group()
        script.close("goes")
        for number in range(1, 5):
            script.put("pub", number)
        if is_lost:
            script.events.append(RedisLost(script.tick()))
        script.connect("goes", present=True)
        for number in (3, 4) if not is_lost else (2, 3, 4):
            script.deliver("goes", "pub", number)
        script.tick(20.0)
        script.connect("pub", present=True)
        assert script.found(rules) == {}


# When all leave.


def left(script: Script, after_s: float = 20.0) -> dict[str, int]:
    """All but the publisher end their sessions then."""
    script.tick(after_s)
    for member in ("stays", "goes"):
        script.connect(member, lasts=False, clean_start=True)
        script.close(member)
    return script.found()


def test_what_was_lost_before_all_left_is_found_all_the_same() -> None:
    for qos in (1, 2):
        script = group()
        script.put("pub", 1, qos=qos)
        assert left(script) == {SHARED_LOST: 1}


def test_what_waited_for_a_member_that_was_away_went_with_it() -> None:
    script = group()
    script.close("goes")
    script.put("pub", 1)
    assert left(script) == {}


def test_what_was_acknowledged_as_they_left_is_promised_to_nobody() -> None:
    script = group()
    script.tick(20.0)
    script.put("pub", 1)
    assert left(script, 3.0) == {}


@pytest.mark.parametrize(
    ("later_s", "to", "found"),
    [(3.0, "stays", {}), (30.0, "stays", {SHARED_TWICE: 1}), (3.0, "also", {SHARED_TWICE: 1})],
)
def test_sent_again_elsewhere_it_may_come_to_another_where_a_node_had_ended_that_was_not_purged_yet(
    later_s: float, to: str, found: dict[str, int]
) -> None:
    script = group(lasts=False)
    script.connect("also", lasts=False, node="a")
    script.subscribe("also", GROUP)
    script.tick(10.0)
    script.fault("kill replicant", "b")
    script.tick(later_s)
    script.publish("pub", 1, qos=2)
    script.close("pub")
    script.connect("pub", present=True, node="c")
    script.publish("pub", 1, qos=2, again=True)
    script.deliver("also", "pub", 1, qos=2)
    script.deliver(to, "pub", 1, qos=2)
    assert script.found() == found
