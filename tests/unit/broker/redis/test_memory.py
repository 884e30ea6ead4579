"""How full Redis is, and what streams may take."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.redis.memory import RedisMemory, memory_of, share_of

MIB = 1024 * 1024


def test_what_info_says() -> None:
    said = (
        b"# Memory\r\nused_memory:1024\r\nused_memory_human:1.00K\r\nmaxmemory:2048\r\nmaxmemory_policy:noeviction\r\n"
    )
    assert memory_of(said) == RedisMemory(1024, 2048)
    with pytest.raises(KeyError):
        memory_of(b"# Server\r\nrun_id:1\r\n")


def test_streams_take_a_share() -> None:
    bound = bounds.LOG_RETENTION_BYTES
    assert share_of(0, bound) == bound
    assert share_of(64 * MIB, bound) == 2 * MIB
    assert share_of(8 * MIB, bound) == bounds.REDIS_STREAM_MIN_BYTES
    assert share_of(2**40, bound) == bound
