"""How full Redis is, and who may have the rest."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.redis.memory import MemoryRoom, RedisMemory, memory_of, share_of

MIB = 1024 * 1024


def test_what_info_says() -> None:
    said = (
        b"# Memory\r\nused_memory:1024\r\nused_memory_human:1.00K\r\nmaxmemory:2048\r\nmaxmemory_policy:noeviction\r\n"
    )
    assert memory_of(said) == RedisMemory(1024, 2048)
    with pytest.raises(KeyError):
        memory_of(b"# Server\r\nrun_id:1\r\n")


def test_it_is_short_from_three_quarters_on_until_it_has_room() -> None:
    room = MemoryRoom()
    found = []
    for percent in (74, 75, 71, 69, 74):
        room.looked(RedisMemory(percent, 100))
        found.append(room.is_short)
    assert found == [False, True, True, False, False]


def test_without_a_bound_it_is_never_short() -> None:
    room = MemoryRoom()
    room.looked(RedisMemory(2**40, 0))
    assert (room.is_short, room.is_reserved(), room.is_full()) == (False, False, False)


def test_what_was_written_since_the_last_look_counts() -> None:
    room = MemoryRoom()
    room.looked(RedisMemory(80 * MIB, 100 * MIB))
    assert not room.is_reserved()
    room.wrote(3 * MIB)
    assert room.is_reserved()
    room.looked(RedisMemory(80 * MIB, 100 * MIB))
    assert not room.is_reserved()


def test_streams_take_a_share() -> None:
    bound = bounds.LOG_RETENTION_BYTES
    assert share_of(0, bound) == bound
    assert share_of(64 * MIB, bound) == 2 * MIB
    assert share_of(8 * MIB, bound) == bounds.REDIS_STREAM_MIN_BYTES
    assert share_of(2**40, bound) == bound
