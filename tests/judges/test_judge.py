"""The checker: it passes what is right, and finds each message that is lost, doubled or out of order."""

from __future__ import annotations

import random

import pytest

from judges import judge as checker
from judges.judge import judge
from judges.made_up import Script, a_good_history, begun
from load.history import Delivered, Message


@pytest.mark.parametrize("seed", range(20))
def test_a_good_history_has_no_findings(seed: int) -> None:
    verdict = judge(a_good_history(seed))
    assert verdict.findings == []
    assert verdict.acknowledged == 30


@pytest.mark.parametrize("seed", range(20))
def test_in_a_good_history_any_change_for_the_worse_is_found(seed: int) -> None:
    events, rng = a_good_history(seed), random.Random(seed)
    came = [event for event in events if isinstance(event, Delivered)]
    times = [Message(event.publisher, event.number) for event in came]
    once = [event for event in came if times.count(Message(event.publisher, event.number)) == 1]

    lost = rng.choice(once)
    assert judge([event for event in events if event is not lost]).count(checker.LOST) == 1

    twice = rng.choice([event for event in once if event.qos == 2])
    assert judge([*events, twice]).count(checker.DUPLICATED) == 1

    late = rng.choice([event for event in once if any(event.qos == o.qos and o.number > event.number for o in once)])
    moved = [event for event in events if event is not late]
    assert judge([*moved, late]).count(checker.REORDERED) == 1


# Losses.


def test_what_is_sent_while_a_subscription_is_young_need_not_come_however_late_it_is_acknowledged() -> None:
    script = Script()
    script.connect("pub")
    script.connect("sub")
    script.subscribe("sub")
    script.publish("pub", 1)
    script.tick(1.0)
    script.acknowledge("pub", 1)
    assert script.found() == {}
    script.publish("pub", 2)
    script.acknowledge("pub", 2)
    assert script.found() == {checker.LOST: 1}


def test_what_was_sent_before_the_subscription_need_not_come_however_late_it_is_acknowledged() -> None:
    script = Script()
    script.connect("pub")
    script.connect("sub")
    script.publish("pub", 1)
    script.subscribe("sub")
    script.tick(5.0)
    script.acknowledge("pub", 1)
    assert script.found() == {}


def test_what_is_not_acknowledged_need_not_come() -> None:
    script = begun()
    script.publish("pub", 1)
    script.crossing(2)
    assert script.found() == {}


def test_what_no_filter_matches_need_not_come() -> None:
    script = begun()
    script.publish("pub", 1, topic="other")
    script.acknowledge("pub", 1)
    assert script.found() == {}


def test_a_connection_that_ended_may_lack_the_last_messages_but_none_between() -> None:
    script = begun(lasts=False)
    for number in (1, 2):
        script.publish("pub", number)
        script.acknowledge("pub", number)
    script.close("sub")
    assert script.found() == {}
    script = begun(lasts=False)
    script.publish("pub", 1)
    script.acknowledge("pub", 1)
    script.crossing(2)
    script.close("sub")
    assert script.found() == {checker.LOST: 1}


def test_a_connection_that_is_there_lacks_none() -> None:
    script = begun(lasts=False)
    script.crossing(1)
    script.publish("pub", 2)
    script.acknowledge("pub", 2)
    assert script.found() == {checker.LOST: 1}


def test_an_unsubscribed_filter_is_owed_nothing_more() -> None:
    script = begun()
    script.crossing(1)
    script.unsubscribe("sub")
    script.publish("pub", 2)
    script.acknowledge("pub", 2)
    assert script.found() == {}


def test_what_comes_to_a_later_subscription_proves_nothing_about_an_earlier_one() -> None:
    script = begun()
    script.publish("pub", 1)
    script.acknowledge("pub", 1)
    script.unsubscribe("sub")
    script.subscribe("sub")
    script.tick(1.0)
    script.crossing(2)
    assert script.found() == {}


def test_what_came_to_an_earlier_subscription_proves_nothing_about_a_later_one() -> None:
    """A message is sent just before the first, and again as the second's node dies with what is on its way there."""
    script = Script()
    script.connect("pub")
    script.connect("sub", lasts=False)
    script.publish("pub", 1)
    script.subscribe("sub")
    script.publish("pub", 2)
    script.deliver("sub", "pub", 2)
    script.unsubscribe("sub")
    script.close("pub")
    script.connect("pub", present=True)
    script.subscribe("sub")
    script.tick(2.0)
    for number in (1, 2):
        script.publish("pub", number, again=True)
    for number in (1, 2):
        script.acknowledge("pub", number)
    script.close("sub")
    assert script.found() == {}


def test_a_session_that_waits_is_owed_everything() -> None:
    script = begun()
    script.close("sub")
    script.publish("pub", 1)
    script.acknowledge("pub", 1)
    assert script.found() == {checker.LOST: 1}


# Repeats and order.


def test_a_message_sent_once_to_a_connection_comes_once() -> None:
    script = begun()
    script.crossing(1)
    script.deliver("sub", "pub", 1)
    assert script.found() == {checker.REPEATED: 1}


def test_qos_2_comes_once_also_when_the_connection_is_another() -> None:
    script = begun()
    script.crossing(1, qos=2)
    script.close("sub")
    script.connect("sub", present=True)
    script.deliver("sub", "pub", 1, qos=2)
    assert script.found() == {checker.DUPLICATED: 1}


def test_qos_2_may_come_again_to_another_session() -> None:
    script = begun(lasts=False)
    script.crossing(1, qos=2)
    script.close("sub")
    script.connect("sub", lasts=False)
    script.subscribe("sub")
    script.deliver("sub", "pub", 1, qos=2)
    assert script.found() == {}


def test_after_a_repeat_the_order_is_that_of_the_first_time() -> None:
    script = begun()
    for number in (1, 2, 3):
        script.publish("pub", number)
    for number in (1, 2):
        script.deliver("sub", "pub", number)
    script.close("sub")
    script.connect("sub", present=True)
    for number in (2, 3):
        script.deliver("sub", "pub", number)
    assert script.found() == {}
    script.publish("pub", 4)
    script.publish("pub", 5)
    script.deliver("sub", "pub", 5)
    script.deliver("sub", "pub", 4)
    assert script.found() == {checker.REORDERED: 1}


def test_each_topic_and_qos_has_an_order_of_its_own() -> None:
    script = begun()
    script.subscribe("sub", "other")
    script.publish("pub", 1)
    script.publish("pub", 2, topic="other")
    script.publish("pub", 3, qos=2)
    script.deliver("sub", "pub", 3, qos=2)
    script.deliver("sub", "pub", 2, topic="other")
    script.deliver("sub", "pub", 1)
    assert script.found() == {}


def test_a_clean_session_sees_order_within_one_connection_of_the_publisher() -> None:
    script = begun(lasts=False)
    script.publish("pub", 1)
    script.acknowledge("pub", 1)
    script.close("pub")
    script.connect("pub", lasts=False, node="b")
    script.publish("pub", 2)
    script.deliver("sub", "pub", 2)
    script.deliver("sub", "pub", 1)
    assert script.found() == {}


def test_what_was_sent_on_two_connections_may_come_to_a_clean_session_late_by_the_first() -> None:
    script = begun(lasts=False)
    script.publish("pub", 1)
    script.publish("pub", 2)
    script.close("pub")
    script.connect("pub", node="b")
    script.publish("pub", 2, again=True)
    script.publish("pub", 3)
    script.deliver("sub", "pub", 3)
    script.deliver("sub", "pub", 1)
    script.deliver("sub", "pub", 2)
    assert script.found() == {}
    script.publish("pub", 4)
    script.publish("pub", 5)
    script.deliver("sub", "pub", 5)
    script.deliver("sub", "pub", 4)
    assert script.found() == {"reordered": 1}


def sends_again(script: Script, number: int, qos: int = 1) -> None:
    """On another connection, and it comes."""
    script.close("pub")
    script.connect("pub", present=True, node="b")
    script.publish("pub", number, qos=qos, again=True)
    script.deliver("sub", "pub", number, qos=qos)


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_before_the_subscription_and_again_after_it_comes_late(qos: int) -> None:
    script = Script()
    script.connect("pub")
    script.connect("sub")
    script.publish("pub", 1, qos=qos)
    script.subscribe("sub")
    script.publish("pub", 2, qos=qos)
    script.deliver("sub", "pub", 2, qos=qos)
    sends_again(script, 1, qos)
    assert script.found() == {}


def test_what_comes_of_a_subscription_that_is_not_acknowledged_yet_has_no_part_in_the_order() -> None:
    script = begun()
    script.unsubscribe("sub")
    script.publish("pub", 1)
    script.publish("pub", 2)
    script.deliver("sub", "pub", 2)
    sends_again(script, 1)
    script.subscribe("sub")
    assert script.found() == {}


def test_what_is_sent_again_to_a_subscription_that_stood_all_the_time_comes_in_order() -> None:
    script = begun()
    script.publish("pub", 1)
    script.publish("pub", 2)
    script.deliver("sub", "pub", 2)
    sends_again(script, 1)
    assert script.found() == {checker.REORDERED: 1}


def test_what_nobody_sent_is_found() -> None:
    script = begun()
    script.deliver("sub", "pub", 7)
    script.publish("pub", 8, topic="other")
    script.deliver("sub", "pub", 8)
    assert script.found() == {checker.INVENTED: 2}


def test_a_connection_of_the_chapter_before_may_end_late() -> None:
    script = begun()
    script.close("left", connection=99)
    script.crossing(1)
    assert script.found() == {}
