"""How long the marks of nodes that went are kept."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.durable.departed_sources import DepartedSources
from flockmq.routing.message_id import node_source
from flockmq.routing.slots import SlotMessage
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import ID, REPLICANT, SENDER, SLOT, Owner, request, subscribed
from unit.broker.protocol.harness import publish

KEPT_S = bounds.MARKS_KEPT_S


def test_a_source_is_due_when_its_node_went_long_enough_ago() -> None:
    departed = DepartedSources()
    departed.departed(b"a", 0.0)
    departed.departed(b"b", 1.0)
    assert departed.take_due(KEPT_S - 0.5) == []
    assert departed.take_due(KEPT_S) == [b"a"]
    assert departed.take_due(KEPT_S + 1.0) == [b"b"]
    assert departed.take_due(KEPT_S + 1.0) == []


def test_a_node_that_went_again_is_kept_from_then_on() -> None:
    departed = DepartedSources()
    departed.departed(b"a", 0.0)
    departed.departed(b"a", 5.0)
    assert departed.take_due(KEPT_S) == []
    assert departed.take_due(KEPT_S + 5.0) == [b"a"]


def test_what_another_slot_has_of_it_makes_it_no_younger() -> None:
    departed = DepartedSources()
    departed.found([b"a"], 0.0)
    departed.found([b"a", b"b"], 5.0)
    assert departed.take_due(KEPT_S) == [b"a"]


def test_of_too_many_those_that_went_first_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MARKS_STRANGERS_MAX", 1)
    departed = DepartedSources()
    for source in (b"a", b"b", b"a"):
        departed.departed(source, 0.0)
    assert departed.take_due(0.0) == [b"b"]


async def test_marks_of_nodes_that_are_gone_are_forgotten_in_time(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MARKS_KEPT_S", 0.0)
    subscribed(owner)
    owner.take(1)
    assert redis.slot(SLOT).marks
    owner.nodes.remove(SENDER)
    owner.service.node_gone(SENDER)
    owner.service.tick()
    assert not redis.slot(SLOT).marks


async def test_marks_of_a_node_that_is_back_as_another_incarnation_stay(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, later = f"replicant-2@{'0' * 16}0000", f"replicant-2@{'0' * 16}0001"
    subscribed(owner)
    message = publish(4, "a/b", "1", qos=1, packet_id=9)
    slot_messages = [SlotMessage(node_source(former), 1, b"", 4, message)]
    owner.service.intake.take(slot_messages, owner.epoch, former, lambda _: None)
    owner.service.node_gone(former)
    owner.nodes.append(later)
    monkeypatch.setattr(bounds, "MARKS_KEPT_S", 0.0)
    owner.service.node_gone(SENDER)
    owner.service.tick()
    owner.service.intake.take(slot_messages, owner.epoch, later, lambda _: None)
    await owner.settle()
    assert owner.payloads() == [b"1"]
    assert list(redis.slot(SLOT).marks) == [node_source(later)]


async def test_of_too_many_nodes_that_are_gone_those_that_went_first_are_forgotten(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MARKS_STRANGERS_MAX", 2)
    subscribed(owner)
    message = publish(4, "a/b", "1", qos=1, packet_id=9)
    nodes = [f"replicant@{number}" for number in range(3)]
    for node in nodes:
        owner.service.intake.take(
            [SlotMessage(node_source(node), 1, b"", 4, message)], owner.epoch, node, lambda _: None
        )
    for node in nodes:
        owner.service.node_gone(node)
    owner.service.tick()
    assert set(redis.slot(SLOT).marks) == {node_source(node) for node in nodes[1:]}


async def test_what_a_purged_node_repeats_is_known_to_an_owner_that_took_the_slot_meanwhile(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(owner)
    owner.take(1)
    later = Owner(redis, "core-1@1", 2)
    later.nodes.remove(SENDER)
    await later.own(SLOT)
    assert later.take(1) == [True]
    later.service.resume(ID, REPLICANT, 1, request(1), b"")
    await later.settle()
    assert later.payloads() == [b"1"]
    assert redis.slot(SLOT).marks
    monkeypatch.setattr(bounds, "MARKS_KEPT_S", 0.0)
    later.service.node_gone(SENDER)
    later.service.tick()
    assert not redis.slot(SLOT).marks
