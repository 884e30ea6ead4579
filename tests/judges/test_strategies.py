"""The judge of the strategies of shared subscriptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest

from judges.judge import REORDERED, WRONG_MEMBER, Rules
from judges.made_up import Script

GROUP: Final = "$share/g/#"
MEMBERS: Final = ("ann", "bob")


def dealt(strategy: str, *to: str, topics: Iterable[str] = "t", publishers: Iterable[str] = ("pub",)) -> dict[str, int]:
    """So many messages; topics and publishers take turns. Members and the first publisher are at nodes of their own."""
    script = steady()
    topics, publishers = tuple(topics), tuple(publishers)
    for i, member in enumerate(to):
        topic, publisher = topics[i % len(topics)], publishers[i % len(publishers)]
        script.put(publisher, i + 1, topic)
        script.deliver(member, publisher, i + 1, topic)
    script.tick(5.0)
    script.publish("pub", 99, "other/$")
    return script.found(Rules(shared_strategy=strategy))


def steady() -> Script:
    script = Script()
    for client, node in (("pub", "a"), ("other", "b"), ("ann", "a"), ("bob", "b")):
        script.connect(client, lasts=False, node=node)
    for member in MEMBERS:
        script.subscribe(member, GROUP)
    script.tick(5.0)
    return script


WRONG: Final = {WRONG_MEMBER: 1}


@pytest.mark.parametrize("strategy", ["hash_clientid", "hash_topic", "sticky"])
def test_one_key_has_one_member(strategy: str) -> None:
    assert dealt(strategy, "bob", "bob", "bob") == {}
    assert dealt(strategy, "bob", "bob", "ann") == WRONG


def test_the_key_is_the_clients_or_the_topics() -> None:
    turns = "ann", "bob", "ann", "bob"
    assert dealt("hash_topic", *turns, topics="xy") == {}
    assert dealt("hash_clientid", *turns, topics="xy") == {WRONG_MEMBER: 2}
    assert dealt("hash_clientid", *turns, publishers=("pub", "other")) == {}
    assert dealt("hash_topic", *turns, publishers=("pub", "other")) == {WRONG_MEMBER: 2}


def test_local_is_who_is_at_the_publishers_node() -> None:
    assert dealt("local", "ann", "bob", publishers=("pub", "other")) == {}
    assert dealt("local", "ann", "ann", publishers=("pub", "other")) == WRONG


@pytest.mark.parametrize("strategy", ["round_robin", "round_robin_per_group"])
def test_all_have_their_turn(strategy: str) -> None:
    assert dealt(strategy, *MEMBERS * 4) == {}
    assert dealt(strategy, *("ann",) * 4) == WRONG


def test_a_strategy_that_is_not_known_is_not_judged() -> None:
    for strategy in ("", "random"):
        assert dealt(strategy, "bob", "ann", "ann", "ann", "ann") == {}


def test_who_comes_or_goes_changes_it() -> None:
    script = steady()
    script.put("pub", 1)
    script.deliver("bob", "pub", 1)
    script.close("ann")
    script.tick(5.0)
    script.put("pub", 2)
    script.deliver("bob", "pub", 2)
    script.connect("ann", lasts=False)
    script.subscribe("ann", GROUP)
    script.tick(5.0)
    script.put("pub", 3)
    script.deliver("ann", "pub", 3)
    script.tick(5.0)
    script.publish("pub", 99, "$other")
    assert script.found(Rules(shared_strategy="hash_topic")) == {}


def test_a_member_that_is_away_has_no_turn() -> None:
    script = Script()
    script.connect("pub", lasts=False)
    for member in (*MEMBERS, "away"):
        script.connect(member)
        script.subscribe(member, GROUP)
    script.close("away")
    script.tick(5.0)
    for number, member in enumerate(MEMBERS * 2, 1):
        script.put("pub", number)
        script.deliver(member, "pub", number)
    script.tick(5.0)
    script.publish("pub", 99, "$other")
    assert script.found(Rules(shared_strategy="round_robin")) == {}


def test_while_something_is_broken_and_where_a_member_is_slow_nothing_is_judged() -> None:
    for held_s, fault_s in ((0.5, 0.0), (0.0, 0.5)):
        script = steady()
        if fault_s:
            script.fault("kill core", "core-1", lasts_s=fault_s)
        for number, member in enumerate(MEMBERS, 1):
            script.put("pub", number)
            script.deliver(member, "pub", number, held_s=held_s)
        script.tick(3.0)
        script.publish("pub", 99, "$other")
        assert script.found(Rules(shared_strategy="hash_topic")) == {}


def test_a_member_gets_what_one_connection_publishes_in_order() -> None:
    for order, found in (((1, 2), {}), ((2, 1), {REORDERED: 1})):
        script = steady()
        script.put("pub", 1)
        script.put("pub", 2)
        for number in order:
            script.deliver("ann", "pub", number)
        script.tick(5.0)
        script.publish("pub", 99, "$other")
        assert script.found() == found
