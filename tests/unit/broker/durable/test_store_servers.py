"""How full a server is, and which writes may have the rest."""

from __future__ import annotations

from flockmq.durable.store_servers import MemoryRoom
from flockmq.redis.memory import RedisMemory

MIB = 1024 * 1024


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
    room.written_bytes += 3 * MIB
    assert room.is_reserved()
    room.looked(RedisMemory(80 * MIB, 100 * MIB))
    assert not room.is_reserved()
