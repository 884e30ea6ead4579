"""What may wait for the servers of a Redis Cluster."""

from __future__ import annotations

import asyncio

import pytest

from flockmq import bounds
from flockmq.durable.pending_writes import SlotKeys, SlotQueue
from flockmq.durable.session_store import SessionStore
from flockmq.redis.errors import RedisUnreachable
from flockmq.redis.link import RedisConfig, RedisLink, RedisLinks
from flockmq.redis.memory import RedisMemory

CONFIG = RedisConfig("redis+cluster://127.0.0.1:1")
MORE_THAN_HALF = bytes(bounds.STORE_QUEUE_MAX_BYTES * 3 // 4)


async def unreachable(_: RedisLinks) -> None:
    raise RedisUnreachable("it is away")


async def test_a_server_that_has_no_slots_any_more_has_no_part_of_what_may_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its address is another one each time that it is started anew."""
    monkeypatch.setattr(bounds, "STORE_WATCH_EVERY_S", 0.0)
    store = SessionStore(CONFIG)
    monkeypatch.setattr(RedisLinks, "look_up", unreachable)
    await store.start()
    for slot in (1, 2):
        link = RedisLink(CONFIG, by_hand=True)
        monkeypatch.setattr(RedisLinks, "find", lambda _, key, link=link: link)
        store._slots[slot] = SlotQueue(slot, b"fence", store._servers.of(SlotKeys(slot)))
    store.put(2, b"c", b"field", MORE_THAN_HALF)
    await asyncio.sleep(0.01)
    assert store.is_backed_up(2), "each has its part"
    store.release(1)
    await asyncio.sleep(0.01)
    assert not store.is_backed_up(2)
    assert not store.is_any_full()
    await store.stop()


async def test_a_server_that_has_no_slots_any_more_is_not_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a master that died when it was full."""
    monkeypatch.setattr(bounds, "STORE_WATCH_EVERY_S", 0.0)
    monkeypatch.setattr(RedisLinks, "look_up", unreachable)
    store = SessionStore(CONFIG)
    await store.start()
    server = store._servers.of(SlotKeys(1))
    store._slots[1] = SlotQueue(1, b"fence", server)
    server.is_full = True
    server.room.looked(RedisMemory(100, 100))
    await asyncio.sleep(0.01)
    assert store.redis_full
    assert store.is_any_full()
    store.release(1)
    async with asyncio.timeout(10):
        while store.redis_full or store.is_any_full():  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)
    await store.stop()
