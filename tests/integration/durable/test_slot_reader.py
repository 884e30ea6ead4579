"""Slots read from a real Valkey: whole or not at all, many together, large ones last; what can't be read is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from flockmq import bounds
from flockmq.durable.session_store import StoreFenced
from flockmq.durable.slot_reader import SlotContents, SlotReading, UnreadableSlot
from flockmq.durable.store_servers import StoreServer
from flockmq.redis.errors import RedisUnreachable, StorageUnavailable
from flockmq.redis.link import RedisLink
from integration.crashing_valkey import Valkey
from integration.durable.conftest import NEW, NEWEST, OLD, A, B, M, Owner, Owners


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
        made.store.put(3, A, field, None)
        del expected[A][field]
    assert await made.durable(3)
    taken = await (await owner()).store.take(3, NEW)
    assert taken.sessions == expected
    assert len(taken.marks) == 3000


async def _stored(owner: Owners, fields: int) -> tuple[Owner, dict[bytes, bytes]]:
    """Who owned slot 3, and one session there, which is read in several pages."""
    made = await owner()
    await made.store.take(3, OLD)
    session = {M: b"meta", **{b"q%d" % entry: b"x" * 100 for entry in range(fields)}}
    for field, value in session.items():
        made.store.put(3, A, field, value)
    assert await made.durable(3)
    return made, session


def _behind_the_first_page(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Awaitable[object]]) -> None:
    """Of a session, once."""
    pipeline = RedisLink.pipeline

    async def read(link: RedisLink, commands: Any, *args: Any, **options: Any) -> Any:
        replies = await pipeline(link, commands, *args, **options)
        if commands and commands[0][0] == b"HSCAN" and b":c:" in commands[0][1] and not happened:
            happened.append(True)
            await happens()
        return replies

    happened: list[bool] = []
    monkeypatch.setattr(RedisLink, "pipeline", read)


async def test_a_slot_that_is_read_while_Redis_restarts_comes_whole(
    owner: Owners, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cursor says nothing to a Redis that was restarted: fields would be missing."""
    _, session = await _stored(owner, 3000)
    new = await owner()
    await new.store.take(4, NEW)

    async def restart() -> None:
        valkey.kill()
        valkey.restart()
        new.store.put(4, B, M, b"meta")
        assert await new.durable(4)  # by another connection, which is the link's now

    _behind_the_first_page(monkeypatch, restart)
    with pytest.raises(RedisUnreachable, match="the connection was lost"):
        await new.store.take(3, NEW)
    assert (await new.store.take(3, NEW)).sessions == {A: session}


async def test_of_a_slot_that_Redis_loses_while_it_is_read_no_part_comes(
    owner: Owners, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _stored(owner, 3000)
    new = await owner()
    link = RedisLink(valkey.config)
    _behind_the_first_page(monkeypatch, partial(link.call, "FLUSHALL"))
    with pytest.raises(StorageUnavailable, match="taken anew"):
        await new.store.take(3, NEW)
    assert (await new.store.take(3, NEW)).sessions == {}
    await link.close()


async def test_of_a_slot_that_another_owner_takes_while_it_is_read_no_part_comes(
    owner: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, session = await _stored(owner, 3000)
    new, newest = await owner(), await owner()
    taken: list[SlotContents] = []

    async def take() -> None:
        taken.append(await newest.store.take(3, NEWEST))
        newest.store.drop(3, A)
        assert await newest.durable(3)

    _behind_the_first_page(monkeypatch, take)
    with pytest.raises(StorageUnavailable, match="taken anew"):
        await new.store.take(3, NEW)
    assert taken[0].sessions == {A: session}
    with pytest.raises(StoreFenced):
        await new.store.take(3, NEW)


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

    slots = SlotReading.slots

    async def slowly(reading: SlotReading) -> AsyncIterator[Any]:
        is_reading.set()
        await goes_on.wait()
        async for taken in slots(reading):
            yield taken

    with monkeypatch.context() as patched:
        patched.setattr(SlotReading, "slots", slowly)
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


async def test_of_a_slot_whose_fence_is_none_it_is_told_why_and_others_go_on(owner: Owners, valkey: Valkey) -> None:
    """A string of another form, whose owner writes, or that is taken with others."""
    made, new = await owner(), await owner()
    for slot in (3, 4):
        await made.store.take(slot, OLD)
    link = RedisLink(valkey.config)
    await link.call("SET", "flockmq:{s3}:fence", "x")
    made.store.put(3, A, M, b"meta")
    assert await asyncio.wait_for(made.lost.get(), 10) == 3
    made.store.put(4, A, M, b"meta")
    assert await made.durable(4)
    taken = {slot: taken async for slot, taken in new.store.take_all(dict.fromkeys((3, 4), NEW))}
    assert isinstance(taken[3], UnreadableSlot)
    assert "{s3}" in str(taken[3])
    assert taken[4] == SlotContents({A: {M: b"meta"}})
    await link.call("DEL", "flockmq:{s3}:fence")
    assert (await new.store.take(3, NEW)).sessions == {}
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


async def test_a_session_that_ended_in_a_batch_that_failed_amid_it_is_none(owner: Owners, valkey: Valkey) -> None:
    """Its key is gone, and it is still among the slot's client ids: nothing of it could be read, or kept."""
    made = await owner()
    await made.store.take(3, OLD)
    for client_id in (A, B):
        made.store.put(3, client_id, M, b"1")
    assert await made.durable(3)
    link = RedisLink(valkey.config)
    await link.call("DEL", b"flockmq:{s3}:c:" + A)
    await link.close()
    taken = await (await owner()).store.take(3, NEW)
    assert taken == SlotContents({B: {M: b"1"}})


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
    made.store.end_anew(3)
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
