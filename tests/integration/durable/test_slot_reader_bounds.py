"""How much of slots is read from a real Valkey at once: a bounded amount, less by a slow connection, yet much of what
is small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flockmq import bounds
from flockmq.durable.slot_reader import SlotContents
from flockmq.redis.errors import RedisUnreachable
from flockmq.redis.link import RedisLink
from integration.durable.conftest import NEW, OLD, A, M, Owner, Owners

KIB = 1024
Sessions = dict[bytes, dict[bytes, bytes]]


def _session(messages: int, size: int) -> dict[bytes, bytes]:
    return {M: b"meta", **{b"q%d" % number: b"x" * size for number in range(messages)}}


async def _store(owner: Owner, slots: dict[int, Sessions]) -> None:
    for slot, sessions in slots.items():
        await owner.store.take(slot, OLD)
        for client_id, fields in sessions.items():
            for field, value in fields.items():
                owner.store.put(slot, client_id, field, value)
        assert await owner.durable(slot)


async def _load(owner: Owner, slots: dict[int, Sessions]) -> None:
    """As many as come. Takes them out of `slots`."""
    async for slot, taken in owner.store.take_all(dict.fromkeys(slots, NEW)):
        assert isinstance(taken, SlotContents)
        assert taken.sessions == slots.pop(slot)


def _at_each_round_trip(monkeypatch: pytest.MonkeyPatch, came: Callable[[int], None]) -> None:
    """`came` is called with the number of bytes; what it raises is raised by the link, which is closed."""
    pipeline = RedisLink.pipeline

    async def measured(link: RedisLink, *args: Any, **options: Any) -> Any:
        replies = await pipeline(link, *args, **options)
        try:
            came(_size(replies))
        except RedisUnreachable:
            await link.close()
            raise
        return replies

    monkeypatch.setattr(RedisLink, "pipeline", measured)


def _size(reply: Any) -> int:
    if isinstance(reply, bytes):
        return len(reply)
    return sum(map(_size, reply)) if isinstance(reply, list) else 0


@pytest.fixture
def sixteenth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all bounds, so that less needs to be stored."""
    for name in ("STORE_SLOT_SMALL_BYTES", "STORE_READ_BYTES", "STORE_READ_MAX_BYTES"):
        monkeypatch.setattr(bounds, name, getattr(bounds, name) // 16)


@pytest.mark.usefixtures("sixteenth")
@pytest.mark.parametrize("messages", [1, 8, 24])
async def test_what_is_read_before_it_is_taken_over_is_bounded_whatever_sessions_have(
    owner: Owners, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    """Many small sessions come first, from which nothing follows for the others."""
    made, new = await owner(), await owner()
    large = {A: _session(messages, 64 * KIB - 100)}
    small = {b"small-%d" % number: _session(1, 10) for number in range(10)}
    slots = {slot: small if slot < 16 else large for slot in range(32)}
    await _store(made, slots)
    largest, together, since = 0, 0, 0

    def came(size: int) -> None:
        nonlocal largest, together, since
        largest, since = max(largest, size), since + size
        together = max(together, since)

    _at_each_round_trip(monkeypatch, came)
    async for slot, taken in new.store.take_all(dict.fromkeys(slots, NEW)):
        assert isinstance(taken, SlotContents)
        assert taken.sessions == slots.pop(slot)
        since = 0
    assert slots == {}
    most = max(bounds.STORE_READ_MAX_BYTES, (messages + 1) * 64 * KIB)  # One slot may have more.
    assert largest <= most
    assert together <= most


@pytest.mark.usefixtures("sixteenth")
async def test_a_session_with_much_is_read_in_pages_as_its_fields_allow(
    owner: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, new = await owner(), await owner()
    slots = {3: {A: _session(5000, 200)}}
    await _store(made, slots)
    pages: list[int] = []
    _at_each_round_trip(monkeypatch, pages.append)
    await _load(new, slots)
    assert slots == {}
    assert max(pages) <= 2 * bounds.STORE_READ_BYTES
    assert len(pages) < 50


async def test_slots_come_by_a_connection_that_is_too_slow_for_as_much_at_once_as_usual(
    owner: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, new = await owner(), await owner()
    slots = {slot: {A: _session(50, 10 * KIB)} for slot in range(8)}
    await _store(made, slots)

    def came(size: int) -> None:
        if size > 256 * KIB:
            raise RedisUnreachable("no answer in time")

    _at_each_round_trip(monkeypatch, came)
    for _ in range(2):
        with pytest.raises(RedisUnreachable, match="in time"):
            await _load(new, slots)
    await _load(new, slots)
    assert slots == {}


async def test_many_small_sessions_come_in_few_round_trips(owner: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    made, new = await owner(), await owner()
    slots = {slot: {b"client-%d" % number: _session(2, 100) for number in range(100)} for slot in range(64)}
    await _store(made, slots)
    pages: list[int] = []
    _at_each_round_trip(monkeypatch, pages.append)
    await _load(new, slots)
    assert slots == {}
    assert len(pages) < 50
