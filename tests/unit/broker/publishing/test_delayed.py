"""Delayed messages: published once when they are due, by the leader alone, and never lost."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from flockmq.mqtt.message import publication
from flockmq.mqtt.reason import Reason
from flockmq.publishing import delayed
from flockmq.publishing.delayed import authorization_of
from flockmq.publishing.schedule import Schedule
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.errors import LogFull
from flockmq.rlog.schema import DELAYED, DelayedMessage
from flockmq.routing.message_id import origin_of, session_source
from unit.broker.publishing.delayed_log import JOS, NOW_S, Log, rest


async def test_what_a_client_left_that_may_not_publish_it_is_dropped(log: Log) -> None:
    for number in range(2):
        message = publication(5, 1, False, f"$delayed/{number + 1}/t".encode(), b"%d" % number, b"")
        assert await log.hosts[1].delayed.take(message, JOS) == Reason.SUCCESS
    assert [authorization_of(row) for row in log.rows.values()] == [JOS, JOS]
    log.tick(1.0)
    assert await log.hosts[0].next() == "0"
    log.dropped.append(JOS)
    log.tick(1.0)
    await rest()
    assert log.hosts[0].published.empty()
    assert not log.rows, "it doesn't wait for a ban to end"


async def test_whose_a_message_is_stands_in_the_log_when_all_nodes_know_of_it(log: Log) -> None:
    log.is_new = False
    await log.hosts[1].delayed.take(publication(5, 1, False, b"$delayed/5/t", b"x", b""), JOS)
    (row,) = log.rows.values()
    assert row == DelayedMessage(b"t", b"x", 1, False, b"", 5)
    assert len(msgspec.msgpack.decode(DELAYED.encode(row))) == 8, "to the bytes of the first release"


async def test_what_is_to_be_retained_says_whose_it_is(log: Log) -> None:
    for retain in (True, False):
        message = publication(5, 1, retain, b"$delayed/1/t", b"x", b"")
        message.author = b"author"
        await log.hosts[0].delayed.take(message, JOS)
    assert [row.author for row in log.rows.values()] == [b"author", b""]
    log.tick(1.0)
    published = await asyncio.wait_for(log.hosts[0].published.get(), 10)
    assert published.author == b"author"


async def test_the_leader_publishes_what_is_due_in_its_order_as_it_was(log: Log) -> None:
    leader, other = log.hosts
    for seconds in (30, 10, 20):
        assert await other.take(f"$delayed/{seconds}/t/{seconds}", str(seconds), 2, retain=True) == Reason.SUCCESS
    log.tick(9.9)
    await rest()
    assert leader.published.empty()
    log.tick(0.1)
    message = await asyncio.wait_for(leader.published.get(), 10)
    assert (message.topic, message.payload(), message.qos, message.retain) == (b"t/10", b"10", 2, True)
    assert (message.version, message.properties, message.expiry_s) == (5, b"\x01\x01", 77)
    log.tick(100)
    assert [await leader.next(), await leader.next()] == ["20", "30"]
    await rest()
    assert log.rows == {}
    assert other.published.empty()
    assert leader.delayed.published == 3


async def test_a_sooner_one_is_not_kept_waiting_by_a_later_one(log: Log) -> None:
    leader, other = log.hosts
    await other.take("$delayed/4294967/t", "later")
    await rest()
    await other.take("$delayed/1/t", "sooner")
    log.tick(1)
    assert await leader.next() == "sooner"
    assert len(leader.delayed.schedule) == 1


async def test_the_next_leader_reads_on_before_it_publishes(log: Log) -> None:
    leader, other = log.hosts
    await other.take("$delayed/5/t", "x")
    leader.is_leader = False
    log.tick(5)
    await rest()
    assert leader.published.empty()
    assert other.catch_ups == 0
    other.is_leader = True
    assert await other.next() == "x"
    assert other.catch_ups == 1


async def test_what_could_not_be_published_is_tried_again(log: Log) -> None:
    leader, _ = log.hosts
    leader.unwilling.add(b"x")
    await leader.take("$delayed/1/t", "x")
    await leader.take("$delayed/2/t", "y")
    log.tick(2)
    assert await leader.next() == "y"
    await leader.refused.wait()
    await rest()
    assert len(log.rows) == 1
    leader.unwilling.clear()
    assert await leader.next() == "x"
    await rest()
    assert log.rows == {}


async def test_what_is_tried_again_is_retained_once(log: Log) -> None:
    """Its topic may have a newer message meanwhile."""
    leader, _ = log.hosts
    leader.unwilling.add(b"x")
    await leader.take("$delayed/1/t", "x", retain=True)
    log.tick(1)
    for _ in range(2):
        await asyncio.wait_for(leader.refused.wait(), 10)
        leader.refused.clear()
    leader.unwilling.clear()
    assert await leader.next() == "x"
    assert leader.retained == [b"x"]


async def test_what_cannot_be_retained_is_not_published(log: Log) -> None:
    leader, _ = log.hosts
    leader.may_retain = False
    await leader.take("$delayed/1/t", "x", retain=True)
    log.tick(1)
    await asyncio.wait_for(leader.refused.wait(), 10)
    assert leader.published.empty()
    leader.may_retain = True
    assert await leader.next() == "x"


async def test_what_was_published_is_not_again_because_the_log_is_away(log: Log) -> None:
    leader, _ = log.hosts
    await leader.take("$delayed/1/t", "x")
    log.fails = StorageUnavailable("away")
    log.tick(1)
    assert await leader.next() == "x"
    await rest()
    assert len(log.rows) == 1
    log.fails = None
    await rest()
    assert log.rows == {}
    assert leader.published.empty()


async def test_what_its_client_had_to_send_again_has_the_same_origin_both_times(log: Log) -> None:
    leader, other = log.hosts
    message = publication(5, 2, False, b"$delayed/1/t", b"twice", b"")
    message.origin = origin_of(session_source(bytes(8)), 7)
    assert [await host.delayed.take(message) for host in (leader, other)] == [Reason.SUCCESS] * 2
    log.tick(1.0)
    first, second = [await asyncio.wait_for(leader.published.get(), 10) for _ in range(2)]
    assert first.origin == second.origin != message.origin
    assert first.origin[:8] != message.origin[:8], "the publisher went on with its numbers meanwhile"


async def test_what_was_left_for_a_time_that_has_passed_is_due_at_once(log: Log) -> None:
    """A will was valid when its client connected."""
    leader, _ = log.hosts
    topic = f"$delayed/{int(NOW_S) + 60}/t"
    log.tick(120)
    assert await leader.take(topic, "x") == Reason.SUCCESS
    assert await leader.next() == "x"
    published = publication(5, 1, False, topic.encode(), b"y", b"")
    assert leader.delayed.row(published, None) == Reason.TOPIC_NAME_INVALID, "its client can be told"


async def test_the_publisher_hears_what_the_log_says(log: Log) -> None:
    leader, _ = log.hosts
    assert await leader.take("$delayed/x/t", "never") == Reason.TOPIC_NAME_INVALID
    log.fails = LogFull("a bound is reached")
    assert await leader.take("$delayed/1/t", "no room") == Reason.QUOTA_EXCEEDED
    assert log.rows == {}


async def test_a_thousand_at_once_are_published_once_each(log: Log) -> None:
    leader, other = log.hosts
    for number in range(1000):
        await other.take("$delayed/1/t", str(number))
    log.tick(1)
    assert {await leader.next() for _ in range(1000)} == {str(number) for number in range(1000)}
    await rest()
    assert (log.deletes, leader.published.qsize()) == (1000, 0)


def test_a_bootstrap_replaces_the_schedule() -> None:
    row = DelayedMessage(b"t", b"", 0, False, b"", 4)
    schedule = Schedule()
    schedule.put(b"\0" * 16, row, None)
    fresh = schedule.fresh()
    fresh.put(b"\0" * 7 + b"\x05" + b"\0" * 8, row, None)
    schedule.swap(fresh)
    assert schedule.first_ms() == 5
    assert schedule.due(4, 10) == []
    assert len(schedule.due(5, 10)) == 1


async def test_messages_that_cannot_be_published_hold_no_others_up(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed, "DELAYED_BATCH_MAX", 2)
    leader = log.hosts[0]
    leader.unwilling = {b"stuck 1", b"stuck 2", b"stuck 3"}
    for number, payload in enumerate(("stuck 1", "stuck 2", "a", "stuck 3", "b"), start=1):
        await leader.take(f"$delayed/{number}/t", payload)
    log.tick(10)
    assert [await leader.next(), await leader.next()] == ["a", "b"]
    leader.unwilling.clear()
    assert [await leader.next() for _ in range(3)] == ["stuck 1", "stuck 2", "stuck 3"]


async def test_messages_that_are_not_accepted_hold_no_others_up(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed, "DELAYED_BATCH_MAX", 2)
    leader = log.hosts[0]
    leader.unaccepted = {b"stuck 1": asyncio.Event(), b"stuck 2": asyncio.Event()}
    for number, payload in enumerate(("stuck 1", "stuck 2", "a", "b"), start=1):
        await leader.take(f"$delayed/{number}/t", payload)
    log.tick(3)
    assert [await leader.next() for _ in range(3)] == ["stuck 1", "stuck 2", "a"]
    log.tick(1)
    assert await leader.next() == "b"
    await rest()
    assert sorted(row.payload for row in log.rows.values()) == [b"stuck 1", b"stuck 2"]
    for accepted in leader.unaccepted.values():
        accepted.set()
    await rest()
    assert log.rows == {}
    assert leader.published.empty()


async def test_so_many_wait_for_their_receivers(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed, "DELAYED_UNDER_WAY_MAX", 2)
    leader = log.hosts[0]
    leader.unaccepted = {b"stuck 1": asyncio.Event(), b"stuck 2": asyncio.Event()}
    for number, payload in enumerate(("stuck 1", "stuck 2", "a"), start=1):
        await leader.take(f"$delayed/{number}/t", payload)
    log.tick(10)
    assert [await leader.next() for _ in range(2)] == ["stuck 1", "stuck 2"]
    await rest()
    assert leader.published.empty()
    leader.unaccepted[b"stuck 1"].set()
    assert await leader.next() == "a"


async def test_who_leads_no_more_deletes_nothing(log: Log) -> None:
    """The next leader publishes it again, under the same origin."""
    leader, other = log.hosts
    leader.unaccepted = {b"x": asyncio.Event()}
    await leader.take("$delayed/1/t", "x")
    log.tick(1)
    assert await leader.next() == "x"
    leader.is_leader, other.is_leader = False, True
    assert await other.next() == "x"
    await rest()
    deletes = log.deletes
    leader.unaccepted[b"x"].set()
    await rest()
    assert (deletes, log.deletes) == (1, 1)
