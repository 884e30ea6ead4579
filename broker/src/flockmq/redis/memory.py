"""How much of Redis' memory is used, and what streams may use of it. No I/O.

If Redis has a `maxmemory`, queues and retained data stop at REDIS_SHORT_PART of it: from there on all nodes refuse
more. Writes already under way are accepted up to REDIS_RESERVED_PART (`durable.store_servers.MemoryRoom`). The rest is
for the log itself.
"""

from __future__ import annotations

from typing import NamedTuple

from flockmq import bounds


class RedisMemory(NamedTuple):
    """In bytes. `limit` 0: Redis has no limit."""

    used: int
    limit: int


def memory_of(info: bytes) -> RedisMemory:
    """Parse INFO memory. Raises KeyError or ValueError."""
    fields = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    return RedisMemory(int(fields["used_memory"]), int(fields["maxmemory"]))


def share_of(limit: int, bound: int) -> int:
    """How many bytes of Redis' memory a trimmed stream may use: `bound`, or less if Redis has little memory."""
    return min(bound, max(limit // bounds.REDIS_STREAMS_PARTS, bounds.REDIS_STREAM_MIN_BYTES)) if limit else bound
