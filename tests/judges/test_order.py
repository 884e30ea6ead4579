"""The judge of order: messages come as they were sent."""

from __future__ import annotations

import pytest

from judges.judge import REORDERED, Rules
from judges.made_up import Script, begun


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
    assert script.found() == {REORDERED: 1}


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
    assert script.found() == {REORDERED: 1}


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
    assert script.found() == {REORDERED: 1}


def test_a_copy_that_may_have_expired_or_overflowed_leaves_the_other_to_come_late() -> None:
    for expiry_s, rules in ((1.0, Rules()), (-1.0, Rules(max_mqueue_len=1))):
        script = begun()
        script.close("sub")
        script.publish("pub", 1, expiry_s=expiry_s)
        script.publish("pub", 2)
        script.close("pub")
        script.connect("pub", present=True, node="b")
        script.publish("pub", 1, again=True, expiry_s=expiry_s)
        script.connect("sub", present=True)
        script.deliver("sub", "pub", 2)
        script.deliver("sub", "pub", 1)
        assert script.found(rules) == {}


@pytest.mark.parametrize(
    ("qos", "kind", "node", "found"),
    [
        (0, "lossy core", "a", {}),
        (0, "stop replicant", "a", {}),
        (0, "cut replicant core", "a", {}),
        (1, "lossy core", "a", {REORDERED: 1}),
        (1, "stop replicant", "a", {REORDERED: 1}),
        (1, "cut replicant core", "a", {REORDERED: 1}),
        (0, "stop redis", "a", {REORDERED: 1}),
        (0, "cut core core", "c", {REORDERED: 1}),
    ],
)
def test_at_qos_0_what_is_sent_to_two_nodes_may_come_in_any_order_while_what_the_first_one_sends_may_be_late(
    qos: int, kind: str, node: str, found: dict[str, int]
) -> None:
    script = begun()
    script.publish("pub", 1, qos=qos)
    script.fault(kind, node)
    script.close("pub")
    script.connect("pub", present=True, node="b")
    script.publish("pub", 2, qos=qos)
    script.deliver("sub", "pub", 2, qos=qos)
    script.deliver("sub", "pub", 1, qos=qos)
    assert script.found() == found


def test_a_session_of_the_publisher_that_is_another_has_an_order_of_its_own() -> None:
    script = begun()
    script.publish("pub", 1)
    script.close("pub")
    script.connect("pub", clean_start=True, node="b")
    script.publish("pub", 2)
    script.deliver("sub", "pub", 2)
    script.deliver("sub", "pub", 1)
    assert script.found() == {}


def test_what_is_retained_and_what_is_shared_out_has_no_part_in_the_order() -> None:
    script = begun()
    script.subscribe("sub", "$share/g/s")
    for topic in ("t", "s"):
        script.publish("pub", 1 if topic == "t" else 3, topic)
        script.publish("pub", 2 if topic == "t" else 4, topic)
    script.deliver("sub", "pub", 2)
    script.deliver("sub", "pub", 1, retained=True)
    script.deliver("sub", "pub", 4, "s")
    script.deliver("sub", "pub", 3, "s")
    assert script.found() == {}
