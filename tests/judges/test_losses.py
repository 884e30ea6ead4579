"""The judge of losses: what is acknowledged comes, unless there is a reason that it may not."""

from __future__ import annotations

import pytest

from judges.judge import LOST
from judges.made_up import Script, begun


def test_what_is_sent_elsewhere_while_a_subscription_is_young_need_not_come_however_late_it_is_acknowledged() -> None:
    for node, found in (("a", {LOST: 1}), ("b", {})):
        script = Script()
        script.connect("pub", node=node)
        script.connect("sub", node="a")
        script.subscribe("sub")
        script.publish("pub", 1)
        script.tick(1.0)
        script.acknowledge("pub", 1)
        assert script.found() == found
        script.put("pub", 2)
        assert script.found()[LOST] == len(found) + 1


def test_what_comes_by_a_subscription_at_another_node_need_not_come_at_once_either() -> None:
    """At the node that said SUBACK it is known, wherever its client is then."""
    script = Script()
    script.connect("pub", node="b")
    script.connect("sub", node="a")
    script.subscribe("sub")
    script.close("sub")
    script.connect("sub", node="b", present=True)
    script.put("pub", 1)
    assert script.found() == {}


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
    assert script.found() == {LOST: 1}


def test_a_connection_that_is_there_lacks_none() -> None:
    script = begun(lasts=False)
    script.crossing(1)
    script.publish("pub", 2)
    script.acknowledge("pub", 2)
    assert script.found() == {LOST: 1}


def test_an_unsubscribed_filter_is_promised_nothing_more() -> None:
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


def test_what_came_as_a_former_connection_sent_it_proves_nothing_about_a_later_one() -> None:
    """A message is sent before the subscription, and again as its client is taken over."""
    script = Script()
    script.connect("pub")
    script.connect("sub", lasts=False)
    script.publish("pub", 1)
    script.subscribe("sub")
    script.publish("pub", 2)
    script.deliver("sub", "pub", 2)
    script.close("pub")
    script.connect("pub", present=True)
    script.tick(2.0)
    for number in (1, 2):
        script.publish("pub", number, again=True)
    for number in (1, 2):
        script.acknowledge("pub", number)
    script.close("sub")
    assert script.found() == {}


def test_a_session_that_waits_is_promised_everything() -> None:
    script = begun()
    script.close("sub")
    script.publish("pub", 1)
    script.acknowledge("pub", 1)
    assert script.found() == {LOST: 1}


@pytest.mark.parametrize(("former_qos", "found"), [(1, {LOST: 1}), (0, {})])
def test_MQTT_3_8_4_4_who_asks_for_what_it_has_misses_nothing_meanwhile(former_qos: int, found: dict[str, int]) -> None:
    script = Script(tells=True)
    script.connect("pub", node="b")
    script.connect("sub")
    script.subscribe("sub", qos=former_qos)
    script.tick(2.0)
    script.ask_for("sub")
    script.put("pub", 1)
    script.subscribe("sub", qos=2)
    script.put("pub", 2, "other")
    assert script.found() == found
