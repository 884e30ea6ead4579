"""The judge of losses: what is acknowledged comes, unless there is a reason that it may not."""

from __future__ import annotations

import pytest

from judges.faults import LINKED_MAX_S
from judges.judge import LOST, SESSION_PRESENT, Rules
from judges.made_up import ONE_CORE, Script, begun
from load.history import ChangeAsked, FaultBegan, FaultEnded, RulesChanged


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
    assert script.found() == {LOST: 1}


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


def test_a_session_that_waits_is_owed_everything() -> None:
    script = begun()
    script.close("sub")
    script.publish("pub", 1)
    script.acknowledge("pub", 1)
    assert script.found() == {LOST: 1}


# What may be missing.


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


def test_a_subscription_at_qos_0_is_owed_nothing_and_one_that_became_so_nothing_more() -> None:
    script = begun()
    script.subscribe("sub", qos=0)
    script.tick(1.0)
    script.put("pub", 1)
    assert script.found() == {}


def test_an_exclusive_subscription_is_owed_its_topics() -> None:
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


def test_what_a_delayed_message_is_owed_to_is_there_when_it_is_due() -> None:
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


# Sessions that end.


def test_a_session_that_its_client_ended_is_owed_what_came_long_before() -> None:
    script = begun()
    script.put("pub", 1)
    script.tick(5.0)
    script.put("pub", 2)
    script.tick(8.0)
    script.connect("sub", clean_start=True)
    script.close("sub", 2, by_server=True)
    assert script.found() == {LOST: 1}


def test_what_a_session_had_that_was_away_when_its_client_ended_it_is_gone() -> None:
    script = begun()
    script.close("sub")
    script.put("pub", 1)
    script.tick(20.0)
    script.connect("sub", clean_start=True)
    assert script.found() == {}


def test_a_session_that_expired_is_owed_nothing_and_one_that_should_be_there_everything() -> None:
    for away_s, found in ((70.0, {}), (30.0, {LOST: 1, SESSION_PRESENT: 1})):
        script = Script()
        script.connect("pub")
        script.connect("sub", expiry_s=60.0)
        script.subscribe("sub")
        script.tick(1.0)
        script.close("sub")
        script.put("pub", 1)
        script.tick(away_s)
        script.connect("sub", expiry_s=60.0)
        assert script.found() == found


def test_a_clean_session_is_owed_what_was_acknowledged_long_before_it_left_unless_a_fault_ran() -> None:
    script = begun(lasts=False)
    script.tick(20.0)
    script.put("pub", 1)
    script.tick(15.0)
    script.disconnect("sub")
    assert script.found() == {LOST: 1}
    script = begun(lasts=False)
    script.tick(20.0)
    script.put("pub", 1)
    script.fault()
    script.tick(8.0)
    script.disconnect("sub")
    assert script.found() == {}


def test_what_came_to_a_session_that_may_be_the_next_one_is_not_lost_to_the_one_before() -> None:
    """A CONNECT that nobody answered may have begun another session when the one before had expired."""
    script = begun()
    script.ask("c", expiry_s=2.0)
    script.close("c", by_server=True)
    script.connect("c", expiry_s=2.0)
    script.subscribe("c")
    script.tick(1.0)
    script.disconnect("c")
    script.put("pub", 1)
    script.deliver("sub", "pub", 1)
    script.connect("c", expiry_s=2.0, present=True)
    script.deliver("c", "pub", 1)
    assert script.found() == {}


APART = ("cut replicant replicant", ("a", "b"))


@pytest.mark.parametrize(
    ("lasts", "apart", "killed", "found"),
    [
        (False, APART, "a", {}),
        (False, ("stop replicant", ("b",)), "a", {}),
        (False, APART, "", {LOST: 1}),
        (False, APART, "b", {LOST: 1}),
        (False, ("cut replicant core", ("a", "c")), "a", {LOST: 1}),
        (True, APART, "a", {LOST: 1}),
    ],
)
def test_what_was_for_a_node_that_is_cut_off_may_die_with_the_one_that_took_it(
    lasts: bool, apart: tuple[str, tuple[str, ...]], killed: str, found: dict[str, int]
) -> None:
    kind, nodes = apart
    script = Script()
    script.connect("pub", node="a")
    script.connect("sub", lasts=lasts, node="b")
    script.subscribe("sub")
    script.tick(1.0)
    script.events.append(FaultBegan(script.tick(), kind, nodes))
    script.put("pub", 1)
    script.events.append(FaultEnded(script.tick(2.0), kind, nodes))
    if killed:
        script.fault("kill replicant", killed)
    script.tick(20.0)
    assert script.found(ONE_CORE) == found


@pytest.mark.parametrize(("since_s", "found"), [(1.0, {}), (LINKED_MAX_S + 1.0, {LOST: 1})])
def test_what_was_for_a_node_that_has_no_link_again_may_die_with_the_one_that_took_it(
    since_s: float, found: dict[str, int]
) -> None:
    script = Script()
    script.connect("pub", node="a")
    script.connect("sub", lasts=False, node="b")
    script.subscribe("sub")
    kind, nodes = APART
    script.fault(kind, *nodes)
    script.tick(since_s)
    script.put("pub", 1)
    script.fault("kill replicant", "a")
    script.tick(20.0)
    assert script.found(ONE_CORE) == found
