"""Sessions in a real Valkey: what a barrier answered is there, whatever dies, and only its owner writes a slot."""

from __future__ import annotations

import asyncio
import random

import pytest

from flockmq import bounds
from flockmq.durable.session_store import SessionStore, StoreFenced
from flockmq.durable.store_servers import StoreServer
from flockmq.redis.errors import RedisUnreachable
from flockmq.redis.link import RedisConfig, RedisLink
from integration.crashing_valkey import Valkey
from integration.durable.conftest import NEW, NEWEST, OLD, A, B, M, Owners


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
    old.store.put(3, A, b"q1", None)
    old.store.drop(3, B)
    old.store.mark(3, b"forgotten", None)
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
        await link.call("FCALL", "flockmq_home_write_2", 3, *keys, before, after, "B", 2, 0, "m", "1")
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
                    made.store.put(slot, A, field, None)
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


async def test_of_a_slot_that_is_released_while_it_moves_to_another_server_nothing_waits_any_more(
    owner: Owners, valkey: Valkey
) -> None:
    made = await owner()
    await made.store.take(3, OLD)
    former, there = made.store._slots[3].server, StoreServer(RedisLink(valkey.config))
    assert isinstance(former, StoreServer)
    async with former.turn:  # A commit is under way.
        made.store.put(3, A, M, b"x" * 100_000)
        moving = asyncio.ensure_future(made.store._move_here(there, [3]))
        await asyncio.sleep(0)
        made.store.release(3)
    await moving
    assert (made.store.queued_bytes, former.waiting_bytes, there.waiting_bytes) == (0, 0, 0)
    assert not there.queue


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
