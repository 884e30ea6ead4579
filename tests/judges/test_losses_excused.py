"""The judge of losses: what may be missing, and why."""

from __future__ import annotations

import pytest

from judges.faults import LINKED_MAX_S
from judges.judge import LOST, Rules
from judges.made_up import ONE_CORE, Script, begun
from load.history import ChangeAsked, FaultBegan, FaultEnded, RulesChanged


def test_the_senders_own_need_not_come_where_it_asked_for_no_local_ones() -> None:
    script = Script()
    script.connect("c")
    script.subscribe("c", no_local=True)
    script.tick(1.0)
    script.put("c", 1)
    assert script.found() == {}
    script.connect("other")
    script.put("other", 1)
    assert script.found() == {LOST: 1}


def test_a_message_is_lost_once_however_many_filters_match_it() -> None:
    script = begun()
    script.subscribe("sub", "#")
    script.tick(1.0)
    script.put("pub", 1)
    assert script.found() == {LOST: 1}


def test_a_subscription_at_qos_0_is_promised_nothing_and_one_that_became_so_nothing_more() -> None:
    script = begun()
    script.subscribe("sub", qos=0)
    script.tick(1.0)
    script.put("pub", 1)
    assert script.found() == {}


def test_an_exclusive_subscription_is_promised_its_topics() -> None:
    script = Script()
    script.connect("pub")
    script.connect("sub")
    script.subscribe("sub", "$exclusive/t")
    script.tick(1.0)
    script.put("pub", 1)
    assert script.found() == {LOST: 1}


def test_a_message_may_expire_unless_its_client_is_there_long_before_that() -> None:
    script = begun()
    script.tick(20.0)
    script.put("pub", 1, expiry_s=5.0)
    assert script.found() == {}
    script.put("pub", 2, expiry_s=60.0)
    script.tick(20.0)
    script.crossing(3)
    assert script.found() == {LOST: 1}


def test_a_message_may_expire_while_its_client_is_away_or_a_fault_runs() -> None:
    script = begun()
    script.tick(20.0)
    script.put("pub", 1, expiry_s=60.0)
    script.tick(1.0)
    script.close("sub")
    script.tick(100.0)
    script.connect("sub", present=True)
    script.tick(20.0)
    script.put("pub", 2, expiry_s=60.0)
    script.fault()
    script.tick(20.0)
    assert script.found() == {}


def away_while(fault: str, version: int) -> Script:
    """A message that was published meanwhile never comes."""
    script = Script()
    script.connect("pub", version=version)
    script.connect("sub", expiry_s=3600.0)
    script.subscribe("sub")
    script.tick(20.0)
    script.close("sub")
    script.fault(fault)
    script.put("pub", 1)
    script.connect("sub", present=True, expiry_s=3600.0)
    script.crossing(2)
    script.tick(20.0)
    return script


def test_nothing_waits_of_who_can_not_be_told_that_redis_is_short_of_memory() -> None:
    assert away_while("crowd redis", 4).found() == {}
    assert away_while("crowd redis", 5).found() == {LOST: 1}
    assert away_while("slow redis", 4).found() == {LOST: 1}


@pytest.mark.parametrize(("node", "version", "found"), [("a", 4, {}), ("a", 5, {LOST: 1}), ("b", 4, {LOST: 1})])
def test_nor_for_a_client_whose_node_is_not_back_yet(node: str, version: int, found: dict[str, int]) -> None:
    script = Script()
    script.connect("pub", version=version, node="c")
    script.connect("sub", expiry_s=3600.0, node="a")
    script.subscribe("sub")
    script.tick(20.0)
    script.fault("isolate replicant", node)
    script.fault("crowd redis")
    script.put("pub", 1)
    script.crossing(2)
    script.tick(20.0)
    assert script.found() == found


@pytest.mark.parametrize(("kind", "found"), [("crowd redis", {}), ("slow redis", {LOST: 1})])
def test_a_delayed_message_may_be_late_amid_a_fault_and_find_that_its_client_went(
    kind: str, found: dict[str, int]
) -> None:
    script = Script()
    script.connect("pub", version=4)
    script.connect("sub", expiry_s=3600.0)
    script.subscribe("sub")
    script.tick(20.0)
    script.put("pub", 1, delay_s=1.0)
    script.fault(kind, lasts_s=2.0)
    script.close("sub")
    script.connect("sub", present=True, expiry_s=3600.0)
    script.tick(30.0)
    script.crossing(2)
    assert script.found() == found


def test_what_a_delayed_message_is_promised_to_is_there_when_it_is_due() -> None:
    script = Script()
    script.connect("pub")
    script.connect("sub")
    script.put("pub", 1, delay_s=5.0)
    script.subscribe("sub")
    script.tick(30.0)
    script.crossing(2)
    assert script.found() == {LOST: 1}


def test_a_delayed_message_need_not_come_before_it_is_due() -> None:
    script = begun()
    script.put("pub", 1, delay_s=60.0)
    script.tick(30.0)
    script.crossing(2)
    assert script.found() == {}


def test_when_a_delayed_message_is_due_nobody_knows_if_the_time_was_wrong() -> None:
    script = begun()
    script.put("pub", 1, delay_s=5.0)
    script.fault("clock core", "a")
    script.tick(30.0)
    script.crossing(2)
    assert script.found(ONE_CORE) == {}
    assert script.found() == {LOST: 1}


def away_for(messages: int) -> Script:
    """A subscriber, for so many messages, of which the last two wait for it."""
    script = begun()
    script.close("sub")
    for number in range(1, messages + 1):
        script.put("pub", number)
    script.connect("sub", present=True)
    for number in range(messages - 1, messages + 1):
        script.deliver("sub", "pub", number)
    return script


def test_the_oldest_of_more_than_may_wait_go() -> None:
    assert away_for(5).found(Rules(max_mqueue_len=2)) == {}
    assert away_for(5).found(Rules(max_mqueue_len=3)) == {LOST: 1}
    assert away_for(5).found() == {LOST: 3}


@pytest.mark.parametrize(("node", "found"), [("a", {}), ("b", {LOST: 3})])
def test_the_oldest_of_too_many_go_also_where_it_is_the_clients_node_that_is_away(
    node: str, found: dict[str, int]
) -> None:
    script = begun()
    script.events.append(FaultBegan(script.tick(), "isolate replicant", (node,)))
    for number in range(1, 6):
        script.put("pub", number)
    script.events.append(FaultEnded(script.tick(), "isolate replicant", (node,)))
    for number in range(4, 6):
        script.deliver("sub", "pub", number)
    assert script.found(Rules(max_mqueue_len=2)) == found


@pytest.mark.parametrize(("since_s", "found"), [(1.0, {}), (LINKED_MAX_S + 1.0, {LOST: 3})])
def test_a_clients_node_that_was_away_may_be_back_later_than_its_path(since_s: float, found: dict[str, int]) -> None:
    script = begun()
    script.fault("isolate replicant", "a")
    script.tick(since_s)
    for number in range(1, 6):
        script.put("pub", number)
    for number in range(4, 6):
        script.deliver("sub", "pub", number)
    assert script.found(Rules(max_mqueue_len=2)) == found


@pytest.mark.parametrize(("qos", "found"), [(0, {}), (1, {LOST: 1})])
def test_only_qos_0_passes_what_waits(qos: int, found: dict[str, int]) -> None:
    script = begun()
    script.connect("other", node="b")
    script.events.append(FaultBegan(script.tick(), "isolate replicant", ("a",)))
    script.put("pub", 1)
    script.put("pub", 2)
    script.publish("other", 1, qos=qos)
    script.deliver("sub", "other", 1, qos=qos)
    script.put("pub", 3)
    script.put("pub", 4)
    script.events.append(FaultEnded(script.tick(), "isolate replicant", ("a",)))
    for number in range(2, 5):
        script.deliver("sub", "pub", number)
    assert script.found(Rules(max_mqueue_len=3)) == found


@pytest.mark.parametrize(("is_held", "found"), [(True, {}), (False, {LOST: 1})])
def test_what_was_published_before_may_have_come_behind_if_it_was_acknowledged_later(
    is_held: bool, found: dict[str, int]
) -> None:
    script = begun()
    script.connect("other", node="b")
    script.close("sub")
    for number in range(1, 4):
        script.publish("other", number)
        if not is_held:
            script.acknowledge("other", number)
    script.put("pub", 1)
    if is_held:
        for number in range(1, 4):
            script.acknowledge("other", number)
    script.connect("sub", present=True)
    for number in range(1, 4):
        script.deliver("sub", "other", number)
    assert script.found(Rules(max_mqueue_len=3)) == found


def test_what_was_passed_before_so_many_waited_did_not_overflow() -> None:
    script = begun()
    script.put("pub", 1)
    script.crossing(2)
    script.close("sub")
    for number in range(3, 6):
        script.put("pub", number)
    script.connect("sub", present=True)
    for number in range(3, 6):
        script.deliver("sub", "pub", number)
    assert script.found(Rules(max_mqueue_len=3)) == {LOST: 1}


def test_what_overflowed_while_its_client_was_away_excuses_nothing_later() -> None:
    script = away_for(5)
    script.tick(20.0)
    script.put("pub", 6)
    assert script.found(Rules(max_mqueue_len=2)) == {LOST: 1}


def test_before_version_5_what_is_denied_is_acknowledged_and_dropped() -> None:
    for version, found in ((4, {}), (5, {LOST: 1})):
        script = begun()
        script.close("pub")
        script.connect("pub", present=True, version=version)
        script.events.append(RulesChanged(script.tick(), "t", is_denied=True))
        script.events.append(RulesChanged(script.tick(), "t", is_denied=False))
        script.tick(10.0)
        script.subscribe("sub")
        script.tick(10.0)
        script.put("pub", 1)
        assert script.found() == found


def test_a_rule_may_have_ended_a_subscription_until_it_is_granted_when_all_may_have_it() -> None:
    for waits_s, found in ((0.1, {}), (10.0, {LOST: 1})):
        script = begun()
        script.events.append(ChangeAsked(script.tick(), "deny", "t"))
        script.events.append(RulesChanged(script.tick(), "t", is_denied=False))
        script.tick(waits_s)
        script.subscribe("sub")
        script.tick(10.0)
        script.put("pub", 1)
        assert script.found() == found
