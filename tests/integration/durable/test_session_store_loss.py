"""A Valkey that was emptied, is full, fell back or is without the functions: it is found out and written again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flockmq import bounds
from flockmq.redis.link import RedisLink
from integration.crashing_valkey import Valkey
from integration.durable.conftest import NEW, OLD, A, M, Owners


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


async def test_what_waited_when_Redis_lost_data_is_there_when_it_is_answered(
    owner: Owners, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot is written anew in several batches; this is in the last one."""
    made = await owner()
    await made.store.take(3, OLD)
    session = {M: b"meta", **{b"q%d" % entry: b"x" * 1000 for entry in range(3000)}}
    for field, value in session.items():
        made.store.put(3, A, field, value)
    assert await made.durable(3)
    valkey.kill()
    valkey.restart(empty=True)
    made.store.put(3, A, b"new", b"its publisher waits")
    answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    made.store.barrier(3, answered.set_result)
    assert await made.lost.get() == 3
    link, write, found = RedisLink(valkey.config), made.store._write, asyncio.Queue[object]()

    async def look_behind_each(*args: Any) -> None:
        await write(*args)
        if answered.done():
            found.put_nowait(await link.call("HGET", "flockmq:{s3}:c:client-a", "new"))

    monkeypatch.setattr(made.store, "_write", look_behind_each)
    await made.store.take(3, OLD, again=True)
    made.store.begin_anew(3)  # As SlotRewriter does it.
    for field, value in session.items():
        made.store.put(3, A, field, value)
    made.store.put(3, A, b"new", b"its publisher waits")
    made.store.end_anew(3)
    assert await found.get() == b"its publisher waits"
    assert await answered
    await link.close()


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


async def test_idle_slots_of_a_redis_that_was_emptied_while_it_ran_are_found_out(
    owner: Owners, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection was lost, as by FLUSHALL or where it evicts keys. So one slot shows it for all."""
    monkeypatch.setattr(bounds, "STORE_WATCH_EVERY_S", 0.01)
    made = await owner()
    for slot in range(3):
        await made.store.take(slot, OLD)
        made.store.put(slot, A, M, b"meta")
        assert await made.durable(slot)
    look, has_looked = made.store._look, asyncio.Event()

    async def looks(*args: Any) -> None:
        await look(*args)
        has_looked.set()

    monkeypatch.setattr(made.store, "_look", looks)
    await has_looked.wait()
    link = RedisLink(valkey.config)
    await link.call("FLUSHALL")
    await link.close()
    found: set[int] = set()
    async with asyncio.timeout(10):
        while found != {0, 1, 2}:
            slot = await made.lost.get()
            found.add(slot)
            await made.store.take(slot, OLD, again=True)
            made.store.begin_anew(slot)  # As SlotRewriter does it.
            made.store.put(slot, A, M, b"meta")
            made.store.end_anew(slot)
            assert await made.durable(slot)


async def test_all_slots_of_an_emptied_redis_are_taken_again_in_few_round_trips(
    owner: Owners, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await owner()
    fences = dict.fromkeys(range(512), OLD)
    async for slot, _ in made.store.take_all(fences):
        made.store.put(slot, A, M, b"meta")
    for slot in fences:
        assert await made.durable(slot)
    valkey.kill()
    valkey.restart(empty=True)
    assert {await made.lost.get() for _ in fences} == fences.keys()
    pipeline, round_trips = RedisLink.pipeline, 0

    async def counted(*args: Any, **options: Any) -> Any:
        nonlocal round_trips
        round_trips += 1
        return await pipeline(*args, **options)

    monkeypatch.setattr(RedisLink, "pipeline", counted)
    async for slot, _ in made.store.take_all(fences, again=True):
        made.store.begin_anew(slot)  # As SlotRewriter does it.
        made.store.put(slot, A, M, b"meta")
        made.store.end_anew(slot)
    for slot in fences:
        assert await made.durable(slot)
    assert round_trips < 100  # One by one: 3,000.


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
