"""The checker: it passes what is right, and finds each thing that is wrong, where it is wrong."""

from __future__ import annotations

import random

import pytest

from faults import checker, schedule
from faults.checker import judge, matches
from faults.history import (
    Acknowledged,
    AlarmMissing,
    AnyEvent,
    Asked,
    Closed,
    Connected,
    Delivered,
    FaultBegan,
    FaultEnded,
    Message,
    Published,
    RedisLost,
    RowsLeft,
    Subscribed,
    TablesStood,
    Unsubscribed,
    Unwell,
)


class Script:
    """A history, event by event, a tenth of a second apart unless told otherwise."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.now = 0.0
        self._connections: dict[str, int] = {}
        self._count = 0

    def tick(self, seconds: float = 0.1) -> float:
        self.now += seconds
        return self.now

    def connect(self, client: str, *, lasts: bool = True, present: bool = False, node: str = "a") -> int:
        self.ask(client, lasts=lasts, node=node)
        self.events.append(Connected(self.tick(), client, self._connections[client], present))
        return self._connections[client]

    def ask(self, client: str, *, lasts: bool = True, node: str = "a") -> None:
        self._count += 1
        self._connections[client] = self._count
        self.events.append(Asked(self.tick(), client, self._count, node, lasts))

    def close(self, client: str, connection: int = 0, *, by_server: bool = False) -> None:
        self.events.append(Closed(self.tick(), client, connection or self._connections[client], by_server))

    def subscribe(self, client: str, filter: str = "t", qos: int = 2) -> None:
        self.events.append(Subscribed(self.tick(), client, self._connections[client], filter, qos))

    def unsubscribe(self, client: str, filter: str = "t") -> None:
        self.events.append(Unsubscribed(self.tick(), client, filter))

    def publish(self, client: str, number: int, topic: str = "t", qos: int = 1, *, again: bool = False) -> None:
        at = self.tick()
        self.events.append(Published(at, client, self._connections[client], number, topic, qos, again))

    def acknowledge(self, client: str, number: int) -> None:
        self.events.append(Acknowledged(self.tick(), client, number))

    def deliver(self, client: str, publisher: str, number: int, topic: str = "t", qos: int = 1) -> None:
        connection = self._connections[client]
        self.events.append(Delivered(self.tick(), client, connection, publisher, number, topic, qos))

    def crossing(self, number: int, qos: int = 1) -> None:
        """One message from `pub` to `sub`, in full."""
        self.publish("pub", number, qos=qos)
        self.acknowledge("pub", number)
        self.deliver("sub", "pub", number, qos=qos)

    def found(self) -> dict[str, int]:
        return dict(judge(self.events).by_kind())


def begun(*, lasts: bool = True) -> Script:
    """A publisher, and a subscriber of all its messages whose route everybody knows."""
    script = Script()
    script.connect("pub", lasts=lasts)
    script.connect("sub", lasts=lasts)
    script.subscribe("sub")
    script.tick(1.0)
    return script


def a_good_history(seed: int) -> list[AnyEvent]:
    """Messages at both QoS, a publisher and a subscriber that come back, repeats as MQTT allows them."""
    rng, script = random.Random(seed), begun()
    for number in range(1, 31):
        match rng.randrange(5):
            case 0:  # the publisher's connection ends before it hears, and the message comes twice
                script.publish("pub", number)
                script.deliver("sub", "pub", number)
                script.close("pub", by_server=True)
                script.connect("pub", present=True, node="b")
                script.publish("pub", number, again=True)
                script.acknowledge("pub", number)
                script.deliver("sub", "pub", number)
            case 1:  # the subscriber's does, and nobody knows whether it heard
                script.crossing(number)
                script.close("sub")
                script.connect("sub", present=True, node="b")
                script.deliver("sub", "pub", number)
            case 2:  # it waits
                script.close("sub")
                script.publish("pub", number, qos=2)
                script.acknowledge("pub", number)
                script.connect("sub", present=True)
                script.deliver("sub", "pub", number, qos=2)
            case _:
                script.crossing(number, qos=1 + number % 2)
    return script.events


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


def test_what_is_acknowledged_while_a_subscription_is_young_need_not_come() -> None:
    script = Script()
    script.connect("pub")
    script.connect("sub")
    script.subscribe("sub")
    script.publish("pub", 1)
    script.acknowledge("pub", 1)
    assert script.found() == {}
    script.tick(1.0)
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


def test_what_nobody_sent_is_found() -> None:
    script = begun()
    script.deliver("sub", "pub", 7)
    script.publish("pub", 8, topic="other")
    script.deliver("sub", "pub", 8)
    assert script.found() == {checker.INVENTED: 2}


# Sessions and connections.


def test_session_present_is_right() -> None:
    script = Script()
    script.connect("first", present=True)
    script.connect("clean", lasts=False)
    script.close("clean")
    script.connect("clean", lasts=False, present=True)
    script.connect("gone")
    script.close("gone")
    script.connect("gone")
    assert script.found() == {checker.SESSION_PRESENT: 3}


def test_a_session_may_have_begun_where_connack_never_came() -> None:
    script = Script()
    script.ask("c")
    script.close("c", by_server=True)
    script.connect("c", present=True)
    assert script.found() == {}


def test_a_lost_redis_excuses_a_session_that_connack_says_is_gone_and_no_other() -> None:
    script = begun()
    script.connect("stays")
    script.subscribe("stays")
    script.tick(1.0)
    script.publish("pub", 1)
    script.acknowledge("pub", 1)
    script.close("sub")
    script.close("stays")
    script.events.append(RedisLost(script.tick()))
    script.connect("sub")
    script.connect("stays", present=True)
    assert script.found() == {checker.LOST: 1}


def test_the_older_of_two_connections_ends_soon() -> None:
    script = Script()
    older = script.connect("c")
    script.connect("c", present=True, node="b")
    script.close("c", older, by_server=True)
    assert script.found() == {}
    script.connect("c", present=True, node="a")
    script.tick(60.0)
    script.connect("other")
    assert script.found() == {checker.TWO_CONNECTIONS: 1}


def test_a_node_that_hears_nothing_closes_nothing() -> None:
    script = Script()
    older = script.connect("c")
    script.events.append(FaultBegan(script.tick(), "stop replicant", ("a",)))
    script.connect("c", present=True, node="b")
    script.tick(20.0)
    script.events.append(FaultEnded(script.now, "stop replicant", ("a",)))
    script.close("c", older, by_server=True)
    assert script.found() == {}


# Nodes.


def test_tables_are_the_same_everywhere() -> None:
    same = [TablesStood(1.0, node, "route", "1-7", {"routes": "ff"}) for node in "abc"]
    assert judge(same).findings == []
    for other in (
        TablesStood(1.0, "d", "route", "1-8", {"routes": "ff"}),
        TablesStood(1.0, "d", "route", "1-7", {"routes": "fe"}),
    ):
        assert judge([*same, other]).by_kind() == {checker.DIGESTS: 1}
    assert judge([*same, TablesStood(1.0, "d", "auth", "1-2", {"users": "00"})]).findings == []


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (RowsLeft(1.0, "a", 3), checker.ROUTES_LEFT),
        (AlarmMissing(1.0, "Redis lost its data"), checker.ALARM),
        (Unwell(1.0, "a", "Traceback"), checker.UNWELL),
    ],
)
def test_what_a_campaign_saw_of_nodes_is_told(event: AnyEvent, kind: str) -> None:
    assert judge([event]).by_kind() == {kind: 1}


@pytest.mark.parametrize(
    ("filter", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a", False),
        ("a", "a/b", False),
        ("+/b", "a/b", True),
        ("+", "a/b", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a/b", True),
        ("b/#", "a/b", False),
    ],
)
def test_filters_match_as_mqtt_says(filter: str, topic: str, expected: bool) -> None:
    assert matches(filter, topic) is expected


# The schedule.

CORES, REPLICANTS = ("core-1", "core-2", "core-3"), ("replicant-1", "replicant-2")


@pytest.mark.parametrize("seed", range(10))
def test_a_schedule_is_that_of_its_seed_and_as_long_as_asked_for(seed: int) -> None:
    steps = schedule.plan(seed, 60, CORES, REPLICANTS)
    assert steps == schedule.plan(seed, 60, CORES, REPLICANTS)
    assert steps != schedule.plan(seed + 1, 60, CORES, REPLICANTS)
    assert sum(len(step.faults) for step in steps) == 60
    for step in steps:
        touched = [target for fault in step.faults for target in fault.targets]
        assert len(touched) == len(set(touched))
        assert len(step.faults) == 1 or not any(schedule.KINDS[fault.kind].alone for fault in step.faults)


def test_every_kind_of_fault_comes_in_a_long_schedule() -> None:
    steps = schedule.plan(1, 1000, CORES, REPLICANTS)
    assert {fault.kind for step in steps for fault in step.faults} == set(schedule.KINDS)
    assert any(len(step.faults) > 1 for step in steps)
