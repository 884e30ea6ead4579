"""Delayed messages: published once when they are due, by the leader alone, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.auth.stored_authorization import StoredAuthorization
from flockmq.bounds import DELAYED_MAX_S
from flockmq.clock import Clock
from flockmq.entropy import SYSTEM
from flockmq.mqtt.message import Publish, publication
from flockmq.mqtt.reason import Reason
from flockmq.publishing import delayed
from flockmq.publishing.delayed import Delayed, Schedule, authorization_of, parse
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import PUT, Op, StreamId
from flockmq.rlog.errors import LogFull
from flockmq.rlog.schema import DELAYED, DelayedMessage
from flockmq.routing.message_id import origin_of, session_source

NOW_S = 1_000_000_000.0


@given(st.integers(1, DELAYED_MAX_S), st.floats(0, 4e9))
def test_an_interval_counts_from_now(seconds: int, now_s: float) -> None:
    assert parse(b"$delayed/%d/a/b" % seconds, now_s) == (round((now_s + seconds) * 1000), b"a/b")


def test_above_the_longest_interval_it_is_a_time() -> None:
    at_s = int(NOW_S) + 60
    assert parse(b"$delayed/%d/t" % at_s, NOW_S) == (at_s * 1000, b"t")


@pytest.mark.parametrize(
    "topic",
    [
        b"$delayed/",
        b"$delayed/5",
        b"$delayed/5/",
        b"$delayed//t",
        b"$delayed/0/t",
        b"$delayed/-1/t",
        b"$delayed/1.5/t",
        b"$delayed/\xd9\xa3/t",  # an Arabic three
        b"$delayed/4294968/t",  # a time long past
        b"$delayed/999999999/t",  # a second ago
        b"$delayed/1004294968/t",  # too far away
        b"$delayed/99999999999999999999/t",
        b"$delayed/5/$delayed/5/t",
        b"$delayed/5/$SYS/broker",
        b"$delayed/5/$share/g/t",
        b"$delayed/5/$exclusive/t",
        b"$delayed/5/$other/t",
    ],
)
def test_what_says_no_time_or_no_topic_is_refused(topic: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(topic, NOW_S)


class Log:
    """The table, and the nodes that read it."""

    def __init__(self) -> None:
        self.rows: dict[bytes, DelayedMessage] = {}
        self.hosts: list[Host] = []
        self.fails: Exception | None = None
        self.now_s = NOW_S
        self.deletes = 0
        self.is_new = True
        self.dropped: list[StoredAuthorization] = []

    def apply(self, ops: Sequence[Op]) -> None:
        for _, kind, _, key, value in ops:
            if kind == PUT:
                row = DELAYED.decode(value)
                self.rows[key] = row
                for host in self.hosts:
                    host.delayed.schedule.put(key, row, None)
            elif (old := self.rows.pop(key, None)) is not None:
                self.deletes += 1
                for host in self.hosts:
                    host.delayed.schedule.delete(key, old)

    def tick(self, seconds: float) -> None:
        """Time goes by: whoever sleeps until something is due looks again."""
        self.now_s += seconds
        for host in self.hosts:
            host.delayed.schedule.sooner.set()


class Host:
    """A node; `published` has what it published, by payload."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.is_leader = False
        self.published: asyncio.Queue[Publish] = asyncio.Queue()
        self.catch_ups = 0
        self.unwilling: set[bytes] = set()
        self.unaccepted: dict[bytes, asyncio.Event] = {}
        """By payload: until this is set somebody hasn't accepted it."""
        self.refused = asyncio.Event()
        self.is_short = False
        self.retained: list[bytes] = []
        self.may_retain = True
        self.unretained: set[bytes] = set()
        self.delayed = Delayed(
            self, _reason, Clock(lambda: log.now_s, lambda: log.now_s), SYSTEM.token_bytes, lambda: log.is_new
        )
        log.hosts.append(self)

    def leads(self) -> bool:
        return self.is_leader

    def row(self, key: bytes) -> DelayedMessage | None:
        return self.log.rows.get(key)

    def refuses(self, size_bytes: int) -> bool:
        return self.is_short

    def write(self, ops: Sequence[Op]) -> asyncio.Future[StreamId]:
        done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
        if self.log.fails is not None:
            done.set_exception(self.log.fails)
        else:
            self.log.apply(ops)
            done.set_result(StreamId(1, 1))
        return done

    async def caught_up(self) -> bool:
        self.catch_ups += 1
        return True

    def drops(self, row: DelayedMessage) -> bool:
        return authorization_of(row) in self.log.dropped

    async def retain(self, message: Publish) -> bool:
        self.retained.append(message.payload())
        may = self.may_retain and message.payload() not in self.unretained
        if not may:
            self.refused.set()
        return may

    def publish(self, message: Publish) -> asyncio.Event | None:
        if message.payload() in self.unwilling:
            self.refused.set()
            return None
        self.published.put_nowait(message)
        accepted = self.unaccepted.get(message.payload())
        if accepted is None:
            accepted = asyncio.Event()
            accepted.set()
        return accepted

    async def take(self, topic: str, payload: str, qos: int = 1, retain: bool = False) -> int:
        return await self.delayed.take(publication(5, qos, retain, topic.encode(), payload.encode(), b"\x01\x01", 77))

    async def next(self) -> str:
        message = await asyncio.wait_for(self.published.get(), 10)
        return message.payload().decode()


def _reason(done: asyncio.Future[StreamId]) -> int:
    error = done.exception()
    if isinstance(error, LogFull):
        return Reason.QUOTA_EXCEEDED
    return Reason.SUCCESS if error is None else Reason.UNSPECIFIED_ERROR


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Log]:
    """Two nodes; the first leads."""
    monkeypatch.setattr(delayed, "DELAYED_LOOK_S", 0.002)
    made = Log()
    Host(made).is_leader = True
    Host(made)
    running = [asyncio.ensure_future(host.delayed.run()) for host in made.hosts]
    yield made
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_of_one_millisecond_the_first_taken_goes_first(log: Log) -> None:
    """The log has them in any order, and the clock may stand still or go back."""
    for number in range(50):
        log.now_s -= number % 2 / 1_000_000
        await log.hosts[1].take("$delayed/1000000100/t", str(number))
    log.now_s = 1_000_000_100
    log.tick(0)
    assert [await log.hosts[0].next() for _ in range(50)] == [str(number) for number in range(50)]


JOS: Final = StoredAuthorization(b"c", b"jo", "192.0.2.1", 1, b"said", "cn")
ANNES: Final = StoredAuthorization(b"anne", b"anne", "", 0, b"t")


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


async def rest() -> None:
    """Both nodes looked several times at what there is."""
    await asyncio.sleep(0.02)


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


async def leave(leader: Host, payload: str, authorization: StoredAuthorization, *, retain: bool = False) -> None:
    message = publication(5, 1, retain, b"$delayed/1/t", payload.encode(), b"")
    assert await leader.delayed.take(message, authorization) == Reason.SUCCESS


async def test_behind_what_cannot_be_sent_its_clients_next_ones_wait_and_no_others(log: Log) -> None:
    leader = log.hosts[0]
    leader.unwilling = {b"1"}
    for payload, authorization in (("1", JOS), ("2", JOS), ("other", ANNES)):
        await leave(leader, payload, authorization)
    log.tick(1)
    assert await leader.next() == "other"
    await leader.refused.wait()
    await leave(leader, "3", JOS)
    log.tick(1)
    await rest()
    assert leader.published.empty()
    leader.unwilling.clear()
    assert [await leader.next() for _ in range(3)] == ["1", "2", "3"]


async def test_behind_what_the_log_has_to_retain_first_its_clients_next_ones_wait(log: Log) -> None:
    leader = log.hosts[0]
    leader.may_retain = False
    for payload, retain in (("1", True), ("2", False), ("3", True)):
        await leave(leader, payload, JOS, retain=retain)
    log.tick(1)
    await leader.refused.wait()
    await rest()
    assert leader.published.empty()
    leader.may_retain = True
    leader.retained.clear()
    assert [await leader.next() for _ in range(3)] == ["1", "2", "3"]
    assert leader.retained == [b"1", b"3"]


async def test_what_was_retained_before_an_earlier_one_could_be_is_retained_again_behind_it(log: Log) -> None:
    leader = log.hosts[0]
    leader.unretained = {b"1"}
    for payload in ("1", "2"):
        await leave(leader, payload, JOS, retain=True)
    log.tick(1)
    await leader.refused.wait()
    leader.unretained.clear()
    assert [await leader.next() for _ in range(2)] == ["1", "2"]
    assert leader.retained[-2:] == [b"1", b"2"]


async def test_behind_one_that_may_not_be_published_any_more_its_clients_next_ones_keep_their_order(log: Log) -> None:
    leader = log.hosts[0]
    leader.unwilling = {b"1"}
    await leave(leader, "1", JOS)
    await leave(leader, "2", JOS)
    log.tick(1)
    await leader.refused.wait()
    log.dropped.append(JOS)
    leader.unwilling.clear()
    await leave(leader, "3", ANNES)
    log.tick(1)
    assert await leader.next() == "3"
    await rest()
    assert (log.rows, leader.published.empty()) == ({}, True)


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
