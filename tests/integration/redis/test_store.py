"""Durable sessions, on Sentinel and Cluster: what a barrier answered outlives the primary."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
from redis.crc import key_slot

from flockmq import bounds
from flockmq.durable.pending_writes import META, SlotKeys
from flockmq.durable.session_store import SessionStore
from flockmq.durable.slot_reader import SlotContents
from flockmq.redis.errors import StorageError, StorageUnavailable
from flockmq.redis.link import RedisConfig
from integration.durable.conftest import Owner
from integration.redis.servers import PATIENCE_S, Clustered, Replicated

A = b"client"
OLD, NEW = "1-1 core-0@aa", "1-2 core-1@bb"
SLOTS = range(12)

Owners = Callable[[RedisConfig], Owner]


@pytest.fixture
async def owner() -> AsyncIterator[Owners]:
    """Makes owners; all are stopped at the end."""
    async with AsyncExitStack() as stack:

        def make(config: RedisConfig) -> Owner:
            made = Owner(SessionStore(config))
            stack.push_async_callback(made.store.stop)
            return made

        yield make


async def started(owner: Owner) -> Owner:
    await owner.store.start()
    return owner


async def test_a_barrier_waits_for_as_many_replicas_as_are_asked_for(owner: Owners, replicated: Replicated) -> None:
    made = await started(owner(RedisConfig(replicated.url, min_replicas=2, wait_timeout_s=0.1)))
    await made.store.take(3, OLD)
    stopped = replicated.replicas[0]
    stopped.signal(signal.SIGSTOP)
    made.store.put(3, A, META, b"1")
    answered = asyncio.ensure_future(made.durable(3))
    while made.store.retries < 2:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)
    assert not answered.done()
    stopped.signal(signal.SIGCONT)
    assert await answered
    assert stopped.call("HGET", "flockmq:{s3}:c:client", META) == b"1"


async def test_a_full_primary_with_replicas_takes_what_waits_too(
    owner: Owners, replicated: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is deleted there makes room."""
    monkeypatch.setattr(bounds, "STORE_WATCH_EVERY_S", 0.01)
    config = RedisConfig(replicated.url, min_replicas=1)
    made = await started(owner(config))
    await made.store.take(3, OLD)
    replicated.primary.call("CONFIG", "SET", "maxmemory", 1)
    made.store.put(3, A, META, b"taken in before")
    async with asyncio.timeout(PATIENCE_S):
        assert await made.durable(3)
        assert made.store.is_full(3)
        taken = await (await started(owner(config))).store.take(3, NEW)
    assert taken.sessions == {A: {META: b"taken in before"}}


async def test_a_primary_that_is_killed_under_load_loses_nothing_that_was_answered(
    owner: Owners, replicated: Replicated
) -> None:
    config = RedisConfig(replicated.url, min_replicas=1)
    made = await started(owner(config))
    store = made.store
    await store.take(3, OLD)
    answered: list[int] = []

    async def write(first: int, last: int) -> None:
        for number in range(first, last):
            store.put(3, A, META, b"meta")
            store.put(3, A, b"q%d" % number, b"%d" % number)
            store.barrier(3, lambda durable, number=number: answered.append(number if durable else -1))  # type: ignore[misc]
            if number % 10 == 0:
                await asyncio.sleep(0.001)

    await write(0, 500)
    old = replicated.primary
    old.kill()
    await write(500, 1000)
    async with asyncio.timeout(PATIENCE_S):
        assert await made.durable(3)
    assert replicated.await_new_primary(old) is not old
    assert answered == list(range(1000))
    assert made.lost.empty()
    taken = await (await started(owner(config))).store.take(3, NEW)
    assert taken.sessions == {A: {META: b"meta", **{b"q%d" % number: b"%d" % number for number in range(1000)}}}


async def test_slots_are_on_the_masters_that_have_their_hash_slots_and_follow_them(
    owner: Owners, clustered: Clustered
) -> None:
    made = await started(owner(RedisConfig(clustered.url)))
    async for _ in made.store.take_all(dict.fromkeys(SLOTS, OLD)):
        pass
    for slot in SLOTS:
        made.store.put(slot, A, META, b"%d" % slot)
    assert all([await made.durable(slot) for slot in SLOTS])
    assert all(master.rows("KEYS", "flockmq:{s*}:fence") for master in clustered.masters)

    source, target, _ = clustered.masters
    moving = next(slot for slot in SLOTS if source.rows("KEYS", SlotKeys(slot).fence))
    move = asyncio.to_thread(clustered.move_slot, key_slot(SlotKeys(moving).fence), source, target)
    moved = asyncio.ensure_future(move)
    number = 0
    while not moved.done():
        number += 1
        made.store.put(moving, A, b"number", b"%d" % number)
        assert await made.durable(moving)
    await moved
    made.store.put(moving, A, b"last", b"1")
    assert await made.durable(moving)
    assert target.call("HGET", SlotKeys(moving).sessions + A, "last") == b"1"
    taken = await (await started(owner(RedisConfig(clustered.url)))).store.take(moving, NEW)
    assert taken.sessions == {A: {META: b"%d" % moving, b"number": b"%d" % number, b"last": b"1"}}
    assert made.lost.empty()


async def test_a_hash_slot_that_is_moved_holds_up_only_its_own_slot(owner: Owners, clustered: Clustered) -> None:
    made = await started(owner(RedisConfig(clustered.url)))
    async for _ in made.store.take_all(dict.fromkeys(SLOTS, OLD)):
        pass
    source, target, _ = clustered.masters
    moving, *others = [slot for slot in SLOTS if source.rows("KEYS", SlotKeys(slot).fence)]
    made.store.put(moving, A, META, b"1")
    assert await made.durable(moving)
    keys, hash_slot = SlotKeys(moving), key_slot(SlotKeys(moving).fence)
    clustered.begin_move(hash_slot, source, target)
    clustered.move_keys(source, target, [keys.ids])
    made.store.put(moving, A, META, b"2")
    waits = asyncio.ensure_future(made.durable(moving))
    async with asyncio.timeout(PATIENCE_S):
        for number in range(10):
            for slot in others:
                made.store.put(slot, A, META, b"%d" % number)
                assert await made.durable(slot)
    assert not waits.done()
    await asyncio.to_thread(clustered.move_slot, hash_slot, source, target)
    assert await waits
    assert target.call("HGET", keys.sessions + A, META) == b"2"
    assert made.lost.empty()


@pytest.mark.parametrize("moved", ["fence", "ids", "session"])
async def test_a_hash_slot_that_is_moved_holds_up_no_other_that_is_taken(
    owner: Owners, clustered: Clustered, moved: str
) -> None:
    made = await started(owner(RedisConfig(clustered.url)))
    async for _ in made.store.take_all(dict.fromkeys(SLOTS, OLD)):
        pass
    source, target, _ = clustered.masters
    moving, *others = [slot for slot in SLOTS if source.rows("KEYS", SlotKeys(slot).fence)]
    for slot in (moving, *others):
        made.store.put(slot, A, META, b"%d" % slot)
        assert await made.durable(slot)
    keys, hash_slot = SlotKeys(moving), key_slot(SlotKeys(moving).fence)
    clustered.begin_move(hash_slot, source, target)
    clustered.move_keys(source, target, [{"fence": keys.fence, "ids": keys.ids, "session": keys.sessions + A}[moved]])
    new = await started(owner(RedisConfig(clustered.url)))
    taken: dict[int, object] = {}

    async def take() -> None:
        async for slot, contents in new.store.take_all(dict.fromkeys((moving, *others), NEW)):
            taken[slot] = contents

    with pytest.raises(StorageUnavailable, match="is moving"):
        await take()
    assert taken == {slot: SlotContents({A: {META: b"%d" % slot}}) for slot in others}
    await asyncio.to_thread(clustered.move_slot, hash_slot, source, target)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                assert (await new.store.take(moving, NEW)).sessions == {A: {META: b"%d" % moving}}
                break
            except StorageError:
                await asyncio.sleep(0.01)


async def test_what_begins_anew_while_its_hash_slot_is_moved_is_there_as_a_whole(
    owner: Owners, clustered: Clustered
) -> None:
    """Redis refuses a function a key that it has just deleted there: it might be at the next master."""
    made = await started(owner(RedisConfig(clustered.url)))
    source, target, _ = clustered.masters
    async for _ in made.store.take_all(dict.fromkeys(SLOTS, OLD)):
        pass
    moving = next(slot for slot in SLOTS if source.rows("KEYS", SlotKeys(slot).fence))
    made.store.put(moving, A, META, b"1")
    made.store.put(moving, A, b"old", b"1")
    assert await made.durable(moving)
    keys, hash_slot = SlotKeys(moving), key_slot(SlotKeys(moving).fence)
    clustered.begin_move(hash_slot, source, target)
    made.store.drop(moving, A)
    made.store.put(moving, A, META, b"2")
    waits = asyncio.ensure_future(made.durable(moving))
    while not made.store.retries:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)
    assert not waits.done()
    await asyncio.to_thread(clustered.move_slot, hash_slot, source, target)
    async with asyncio.timeout(PATIENCE_S):
        assert await waits
    assert made.lost.empty()
    assert target.call("HGETALL", keys.sessions + A) == [META, b"2"]


async def test_slots_of_living_masters_do_not_wait_for_a_dead_one(owner: Owners, clustered: Clustered) -> None:
    made = await started(owner(RedisConfig(clustered.url)))
    async for _ in made.store.take_all(dict.fromkeys(SLOTS, OLD)):
        pass
    dead = clustered.masters[0]
    lost = [slot for slot in SLOTS if dead.rows("KEYS", SlotKeys(slot).fence)]
    dead.kill()
    for slot in SLOTS:
        made.store.put(slot, A, META, b"1")
    waits = [asyncio.ensure_future(made.durable(slot)) for slot in lost]
    living = [slot for slot in SLOTS if slot not in lost]
    async with asyncio.timeout(PATIENCE_S):
        for slot in living:
            assert await made.durable(slot)
        successor = await started(owner(RedisConfig(clustered.url)))
        groups = await successor.store.apart(SLOTS)
        assert sorted(lost) in [sorted(group) for group in groups]
        for group in groups:
            if group[0] in living:
                fences = dict.fromkeys(group, NEW)
                assert [slot async for slot, _ in successor.store.take_all(fences)] != []
    assert not any(answered.done() for answered in waits)
    for answered in waits:
        answered.cancel()
