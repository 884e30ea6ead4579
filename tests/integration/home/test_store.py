"""Sessions in a real Valkey: what a barrier answered is there, whatever dies, and only its owner writes a slot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from flockmq import bounds
from flockmq.durable import session_store
from flockmq.durable.session_store import SessionStore, StoreFenced
from flockmq.durable.slot_reader import SlotContents, UnreadableSlot, read_slots
from flockmq.durable.store_servers import StoreServer
from flockmq.redis.errors import RedisUnreachable, StorageUnavailable
from flockmq.redis.link import RedisConfig, RedisLink
from integration.home.conftest import Owner
from integration.rlog.conftest import Valkey

A, B = b"client-a", b"client-b"
M = b"m"
OLD, NEW, NEWEST = "1-7 core-0@aa", "1-12 core-1@bb", "2-1 core-0@aa"

Owners = Callable[[], Awaitable[Owner]]


async def test_a_new_owner_takes_what_was_written(owner: Owners) -> None:
    old, new = await owner(), await owner()
    assert (await old.store.take(3, OLD)).sessions == {}
    old.store.put(3, A, M, b"meta")
    old.store.put(3, A, b"q1", b"one")
    old.store.put(3, A, b"q2", b"two")
    old.store.put(3, B, M, b"meta")
    old.store.mark(3, b"source", b"\0\1")
    old.store.mark(3, b"forgotten", b"\0\1")
    assert await old.durable(3)
    old.store.delete(3, A, b"q1")
    old.store.drop(3, B)
    old.store.unmark(3, b"forgotten")
    assert await old.durable(3)
    taken = await new.store.take(3, NEW)
    assert taken.sessions == {A: {M: b"meta", b"q2": b"two"}}
    assert taken.marks == {b"source": b"\0\1"}
    assert (await new.store.take(4, NEW)).sessions == {}


async def test_an_older_owner_is_refused_and_told(owner: Owners) -> None:
    old, new = await owner(), await owner()
    await old.store.take(3, OLD)
    await new.store.take(3, NEW)
    old.store.put(3, A, M, b"late")
    assert not await old.durable(3)
    assert await old.fenced.get() == 3
    assert not await old.durable(3)
    with pytest.raises(StoreFenced, match=NEW):
        await old.store.take(3, OLD)
    assert (await old.store.take(3, NEWEST)).sessions == {}
    assert old.store.queued_bytes == 0


async def test_an_older_owner_that_writes_nothing_is_told_too(owner: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STORE_WATCH_EVERY_S", 0.01)
    old, new = await owner(), await owner()
    await old.store.take(3, OLD)
    await new.store.take(3, NEW)
    assert await old.fenced.get() == 3


async def test_what_is_put_while_a_batch_is_under_way_goes_into_the_next_in_order(owner: Owners) -> None:
    made = await owner()
    session_store = made.store
    await session_store.take(3, OLD)
    answered: list[int] = []
    for number in range(2000):
        session_store.put(3, A, M, b"%d" % number)
        session_store.barrier(3, lambda durable, number=number: answered.append(number if durable else -1))  # type: ignore[misc]
        if number % 100 == 0:
            await asyncio.sleep(0)
    assert await made.durable(3)
    assert answered == list(range(2000))
    assert session_store.commits < 50
    assert (session_store.queued_bytes, session_store.retries) == (0, 0)
    assert (await session_store.take(3, OLD)).sessions == {A: {M: b"1999"}}


async def test_large_slots_are_taken_whole(owner: Owners) -> None:
    made = await owner()
    await made.store.take(3, OLD)
    expected = {}
    for client in range(600):
        client_id = b"client-%d" % client
        expected[client_id] = {M: b"meta", **{b"q%d" % entry: b"x" * 100 for entry in range(client % 7)}}
    expected[A] = {M: b"meta", **{b"q%d" % entry: b"x" * 100 for entry in range(20_000)}}
    for client_id, fields in expected.items():
        for field, value in fields.items():
            made.store.put(3, client_id, field, value)
    for source in range(3000):
        made.store.mark(3, b"%d" % source, b"1")
    assert await made.durable(3)
    for field in list(expected[A])[1:15_001]:
        made.store.delete(3, A, field)
        del expected[A][field]
    assert await made.durable(3)
    taken = await (await owner()).store.take(3, NEW)
    assert taken.sessions == expected
    assert len(taken.marks) == 3000


async def test_all_slots_are_taken_at_once_and_refusals_are_told_apart(owner: Owners) -> None:
    other, made = await owner(), await owner()
    await other.store.take(500, NEWEST)
    refused = set()
    async for slot, taken in made.store.take_all(dict.fromkeys(range(bounds.SLOTS), NEW)):
        if isinstance(taken, StoreFenced):
            refused.add(slot)
            assert not await made.durable(slot)
        else:
            made.store.put(slot, A, M, b"%d" % slot)
            assert taken.sessions == {}
    assert refused == {500}
    assert all([await made.durable(slot) for slot in range(bounds.SLOTS) if slot != 500])


async def test_a_slot_that_is_released_and_taken_anew_while_it_is_read_is_the_later_owners(
    owner: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await owner()
    await made.store.take(3, OLD)
    is_reading, goes_on = asyncio.Event(), asyncio.Event()

    async def slowly(*slots: Any) -> AsyncIterator[Any]:
        is_reading.set()
        await goes_on.wait()
        async for taken in read_slots(*slots):
            yield taken

    with monkeypatch.context() as patched:
        patched.setattr(session_store, "read_slots", slowly)
        late = asyncio.ensure_future(made.store.take(3, OLD))
        await is_reading.wait()
    made.store.release(3)
    await made.store.take(3, NEW)
    goes_on.set()
    with pytest.raises(StorageUnavailable, match="released"):
        await late
    made.store.put(3, A, M, b"new")
    assert await made.durable(3)
    assert made.fenced.empty()


async def test_a_slot_that_was_released_or_taken_anew_is_not_taken_again(owner: Owners) -> None:
    made = await owner()
    await made.store.take(3, OLD)
    server = made.store._slots[3].server
    assert isinstance(server, StoreServer)
    await server.turn.acquire()
    again = asyncio.ensure_future(made.store.take(3, OLD, again=True))
    await asyncio.sleep(0)
    made.store.release(3)
    server.turn.release()
    with pytest.raises(StorageUnavailable, match="released"):
        await again
    await made.store.take(3, NEW)
    made.store.put(3, A, M, b"new")
    with pytest.raises(StorageUnavailable, match="released"):
        await made.store.take(3, OLD, again=True)
    assert await made.durable(3)
    assert (await made.store.take(3, NEW, again=True)).sessions == {A: {M: b"new"}}


async def test_whatever_fails_at_a_look_at_redis_the_next_one_comes(
    owner: Owners, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "STORE_WATCH_EVERY_S", 0.01)
    made = await owner()
    await made.store.take(3, OLD)
    looks, has_failed = made.store._look, asyncio.Event()

    async def fails_once(*args: Any) -> bool:
        if has_failed.is_set():
            return await looks(*args)
        has_failed.set()
        raise RuntimeError("once")

    monkeypatch.setattr(made.store, "_look", fails_once)
    await has_failed.wait()
    valkey.kill()
    valkey.restart(empty=True)
    async with asyncio.timeout(10):
        assert await made.lost.get() == 3


async def test_that_a_session_ends_is_known_until_it_is_durable(owner: Owners) -> None:
    made = await owner()
    await made.store.take(3, OLD)
    made.store.put(3, A, M, b"meta")
    assert not made.store.is_ending(3, A)
    made.store.drop(3, A)
    assert made.store.is_ending(3, A)
    assert not made.store.is_ending(3, B)
    assert await made.durable(3)
    assert not made.store.is_ending(3, A)


async def test_released_slots_are_answered_and_taken_again(owner: Owners) -> None:
    made = await owner()
    await made.store.take(3, OLD)
    made.store.put(3, A, M, b"1")
    answers: list[bool] = []
    made.store.barrier(3, answers.append)
    made.store.release(3)
    assert answers == [False]
    assert made.store.queued_bytes == 0
    made.store.put(3, A, M, b"not ours")
    made.store.drop(3, A)
    made.store.mark(3, b"source", b"1")
    assert (await made.store.take(3, NEW)).sessions.get(A) in (None, {M: b"1"})


async def test_a_batch_that_comes_late_from_a_lost_connection_changes_nothing(owner: Owners, valkey: Valkey) -> None:
    """The answer was lost and the batch sent again; only then Redis gets to the first copy."""
    made = await owner()
    await made.store.take(3, OLD)
    link = RedisLink(valkey.config)
    before = await link.call("GET", "flockmq:{s3}:fence")
    made.store.put(3, A, M, b"1")
    assert await made.durable(3)
    after = await link.call("GET", "flockmq:{s3}:fence")
    made.store.put(3, A, M, b"2")
    assert await made.durable(3)
    assert isinstance(before, bytes)
    assert isinstance(after, bytes)
    keys = ("flockmq:{s3}:fence", "flockmq:{s3}:ids", "flockmq:{s3}:c:client-a")
    with pytest.raises(Exception, match="LOST"):
        await link.call("FCALL", "flockmq_home_write_1", 3, *keys, before, after, "B", 2, 0, "m", "1")
    assert await link.call("HGET", keys[2], "m") == b"2"
    await link.close()


async def test_whatever_a_barrier_answered_outlives_a_crash_amid_batches(owner: Owners, valkey: Valkey) -> None:
    """Valkey is killed again and again; in doubt or not, all ends as it was last written."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    made = await owner()
    slots = range(5)
    for slot in slots:
        await made.store.take(slot, OLD)
    written: dict[int, dict[bytes, bytes]] = {slot: {M: b"meta"} for slot in slots}
    answered: dict[int, int] = dict.fromkeys(slots, -1)
    for slot in slots:
        made.store.put(slot, A, M, b"meta")
    stop = asyncio.Event()

    async def write() -> None:
        number = 0
        while not stop.is_set():
            for _ in range(20):
                number += 1
                slot = chance.choice(slots)
                field = b"q%d" % chance.randrange(50)
                if chance.random() < 0.3:
                    made.store.delete(slot, A, field)
                    written[slot].pop(field, None)
                else:
                    written[slot][field] = b"%d" % number
                    made.store.put(slot, A, field, b"%d" % number)
                made.store.put(slot, A, b"number", b"%d" % number)
                written[slot][b"number"] = b"%d" % number

                def durable(ok: bool, slot: int = slot, number: int = number) -> None:
                    assert ok
                    assert number > answered[slot]
                    answered[slot] = number

                made.store.barrier(slot, durable)
            await asyncio.sleep(0.001)

    writer = asyncio.create_task(write())
    for _ in range(4):
        for _ in range(20):
            await made.durable(chance.choice(slots))
        valkey.kill()
        told = dict(answered)
        valkey.restart()
        link = RedisLink(valkey.config)
        for slot in slots:
            kept = await link.call("HGET", b"flockmq:{s%d}:c:%b" % (slot, A), "number")
            assert int(kept if isinstance(kept, bytes) else -1) >= told[slot]
        await link.close()
    stop.set()
    await writer
    for slot in slots:
        assert await made.durable(slot)
        assert (await (await owner()).store.take(slot, NEW)).sessions == {A: written[slot]}
    assert made.lost.empty()
    assert made.store.retries > 0


async def test_an_emptied_redis_is_found_out_and_what_waited_is_written_when_taken(
    owner: Owners, valkey: Valkey
) -> None:
    made = await owner()
    await made.store.take(3, OLD)
    made.store.put(3, A, M, b"before")
    made.store.put(3, A, b"q", b"lost")
    assert await made.durable(3)
    valkey.kill()
    valkey.restart(empty=True)
    made.store.put(3, A, M, b"after")
    answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    made.store.barrier(3, answered.set_result)
    assert await made.lost.get() == 3
    assert not answered.done()
    assert (await made.store.take(3, OLD)).sessions == {}
    assert await answered
    assert (await (await owner()).store.take(3, NEW)).sessions == {A: {M: b"after"}}


async def test_a_redis_that_lost_the_last_answered_batch_is_found_out(owner: Owners, valkey: Valkey) -> None:
    """As after a failover to a replica that hadn't everything: the fence is there, and of an earlier number."""
    made = await owner()
    await made.store.take(3, OLD)
    made.store.put(3, A, M, b"1")
    assert await made.durable(3)
    link = RedisLink(valkey.config)
    earlier = await link.call("GET", "flockmq:{s3}:fence")
    made.store.put(3, A, M, b"2")
    assert await made.durable(3)
    assert isinstance(earlier, bytes)
    await link.call("SET", "flockmq:{s3}:fence", earlier)
    await link.close()
    made.store.put(3, A, M, b"3")
    assert await made.lost.get() == 3
    await made.store.take(3, OLD)
    assert await made.durable(3)


async def test_idle_slots_of_an_emptied_redis_are_found_out(
    owner: Owners, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "STORE_WATCH_EVERY_S", 0.01)
    made = await owner()
    for slot in range(3):
        await made.store.take(slot, OLD)
    valkey.kill()
    valkey.restart(empty=True)
    assert {await made.lost.get() for _ in range(3)} == {0, 1, 2}


async def test_a_full_redis_takes_what_waits_and_says_that_it_is_full(
    owner: Owners, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "STORE_WATCH_EVERY_S", 0.01)
    made = await owner()
    await made.store.take(3, OLD)
    link = RedisLink(valkey.config)
    await link.call("CONFIG", "SET", "maxmemory", 1)
    made.store.put(3, A, M, b"taken in before")
    assert await made.durable(3)
    assert made.store.is_full(3)
    await (await owner()).store.take(4, NEW)
    await link.call("CONFIG", "SET", "maxmemory", 0)
    async with asyncio.timeout(20):
        while made.store.is_full(3):  # noqa: ASYNC110 - Redis has the event
            await asyncio.sleep(0.01)
    await link.close()


async def test_a_redis_without_the_functions_is_given_them_anew(owner: Owners, valkey: Valkey) -> None:
    made = await owner()
    await made.store.take(3, OLD)
    link = RedisLink(valkey.config)
    await link.call("FUNCTION", "FLUSH")
    await link.close()
    made.store.put(3, A, M, b"meta")
    async with asyncio.timeout(5):
        assert await made.durable(3)
    assert made.lost.empty()


async def test_a_store_whose_queue_is_full_says_so(owner: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STORE_QUEUE_MAX_BYTES", 1000)
    made = await owner()
    await made.store.take(3, OLD)
    made.store.put(3, A, M, b"x" * 1000)
    assert made.store.is_full(3)
    assert await made.durable(3)
    assert not made.store.is_full(3)


async def test_batches_are_bounded_and_keep_their_order(owner: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STORE_TURN_MAX_BYTES", bounds.STORE_BATCH_MAX_BYTES * 5 // 2)
    made = await owner()
    for slot in range(4):
        await made.store.take(slot, OLD)
    order: list[int] = []
    for number in range(12):
        for slot in range(4):
            made.store.put(slot, A, M, b"%d" % number * (bounds.STORE_BATCH_MAX_BYTES // 4))
        made.store.barrier(0, lambda durable, number=number: order.append(number))  # type: ignore[misc]
    assert all([await made.durable(slot) for slot in range(4)])
    assert order == list(range(12))
    assert made.store.commits >= 4 * 3


async def test_a_redis_that_is_away_is_a_clear_error_and_a_stop_answers_what_waits(owner: Owners) -> None:
    session_store = SessionStore(RedisConfig("redis://127.0.0.1:1"))
    await session_store.start()
    with pytest.raises(RedisUnreachable, match=r"127\.0\.0\.1:1"):
        await session_store.take(3, OLD)
    await session_store.stop()
    made = await owner()
    await made.store.take(3, OLD)
    answers: list[bool] = []
    made.store.put(3, A, M, b"1")
    made.store.barrier(3, answers.append)
    await made.store.stop()
    assert answers == [False]


async def test_a_listener_that_fails_holds_up_nobody(owner: Owners) -> None:
    def fail(_: bool) -> None:
        raise ValueError("a seeded fault")

    made = await owner()
    await made.store.take(3, OLD)
    made.store.put(3, A, M, b"1")
    made.store.barrier(3, fail)
    assert await made.durable(3)


async def test_of_a_slot_that_cannot_be_read_it_is_told_why_and_others_come(owner: Owners, valkey: Valkey) -> None:
    link = RedisLink(valkey.config)
    for slot, key in enumerate(("fence", "ids", "marks")):
        await link.call("RPUSH", f"flockmq:{{s{slot}}}:{key}", "x")
    made = await owner()
    spoilt: dict[int, str] = {}
    async for slot, taken in made.store.take_all(dict.fromkeys(range(5), OLD)):
        if isinstance(taken, UnreadableSlot):
            spoilt[slot] = str(taken)
            assert not await made.durable(slot)
        else:
            made.store.put(slot, A, M, b"meta")
            assert await made.durable(slot)
    assert list(spoilt) == [0, 1, 2]
    for slot, key in enumerate(("fence", "ids", "marks")):
        assert f"{{s{slot}}}:{key}" in spoilt[slot]
        assert "WRONGTYPE" in spoilt[slot]
        await link.call("DEL", f"flockmq:{{s{slot}}}:{key}")
        assert (await made.store.take(slot, OLD)).sessions == {}
    await link.close()


async def test_a_session_whose_key_has_a_wrong_type_is_named_and_others_of_its_slot_come(
    owner: Owners, valkey: Valkey
) -> None:
    old, new = await owner(), await owner()
    await old.store.take(3, OLD)
    old.store.put(3, A, M, b"meta")
    old.store.put(3, B, M, b"meta")
    assert await old.durable(3)
    link = RedisLink(valkey.config)
    await link.call("DEL", "flockmq:{s3}:c:client-a")
    await link.call("RPUSH", "flockmq:{s3}:c:client-a", "x")
    taken = await new.store.take(3, NEW)
    assert taken.sessions == {B: {M: b"meta"}}
    assert list(taken.unread) == [A]
    new.store.drop(3, A)
    assert await new.durable(3)
    assert await link.call("EXISTS", "flockmq:{s3}:c:client-a") == 0
    await link.close()


async def test_what_a_wrong_type_refused_is_not_durable_before_it_is_written_anew(
    owner: Owners, valkey: Valkey
) -> None:
    """A function that ends amid a batch has written a part of it, and would know the batch when it comes again."""
    made = await owner()
    for slot in (3, 4):
        await made.store.take(slot, OLD)
        made.store.put(slot, A, M, b"meta")
        assert await made.durable(slot)
    link = RedisLink(valkey.config)
    await link.call("DEL", "flockmq:{s3}:c:client-a")
    await link.call("RPUSH", "flockmq:{s3}:c:client-a", "x")
    made.store.put(3, A, b"q1", b"one")
    made.store.put(3, B, M, b"meta")
    answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    made.store.barrier(3, answered.set_result)
    assert await made.lost.get() == 3
    made.store.put(4, A, b"q1", b"one")
    assert await made.durable(4)
    assert not answered.done()
    assert list((await made.store.take(3, OLD, again=True)).unread) == [A]
    made.store.begin_anew(3)
    made.store.drop(3, A)
    made.store.put(3, A, M, b"anew")
    made.store.put(3, B, M, b"anew")
    assert await answered
    assert (await made.store.take(3, OLD)).sessions == {A: {M: b"anew"}, B: {M: b"anew"}}
    assert made.store.queued_bytes == 0
    await link.close()


async def test_slots_that_have_much_are_taken_behind_those_that_have_little(owner: Owners) -> None:
    old, new = await owner(), await owner()
    sizes = {3: 300, 4: 1, 5: 20, 6: 0}
    expected: dict[int, dict[bytes, dict[bytes, bytes]]] = {}
    for slot, entries in sizes.items():
        await old.store.take(slot, OLD)
        expected[slot] = {A: {M: b"meta", **{b"q%d" % entry: b"x" * 10_000 for entry in range(entries)}}}
        for field, value in expected[slot][A].items():
            old.store.put(slot, A, field, value)
        assert await old.durable(slot)
    came = []
    async for slot, taken in new.store.take_all(dict.fromkeys(sizes, NEW)):
        assert isinstance(taken, SlotContents)
        assert taken.sessions == expected[slot]
        came.append(slot)
    assert sorted(came[:2]) == [4, 6]
    assert came[2:] == [5, 3]
