"""How much of Redis' memory is used, and what may take the rest of it. Pure.

If Redis has a `maxmemory`, queues and retained data stop at REDIS_SHORT_PART of it: all nodes refuse more. What is
under way then is taken up to REDIS_RESERVED_PART. The rest is the log's own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from flockmq import bounds

_WRITTEN_TAKES: Final = 2
"""About how many bytes Redis uses for a byte that is written to a session."""


class RedisMemory(NamedTuple):
    """In bytes; `limit` 0: Redis has none."""

    used: int
    limit: int


def memory_of(info: bytes) -> RedisMemory:
    """What INFO memory says. Raises KeyError or ValueError for anything else."""
    said = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    return RedisMemory(int(said["used_memory"]), int(said["maxmemory"]))


def share_of(limit: int, bound: int) -> int:
    """How many bytes of Redis' memory a stream that may be trimmed takes: `bound`, or less if that would be much."""
    return min(bound, max(limit // bounds.REDIS_STREAMS_PARTS, bounds.REDIS_STREAM_MIN_BYTES)) if limit else bound


class MemoryRoom:
    """Of one server."""

    def __init__(self) -> None:
        self.memory = RedisMemory(0, 0)
        self.is_short = False
        """From REDIS_SHORT_PART on, until it is below REDIS_ROOM_PART again."""
        self._written_bytes = 0

    def looked(self, memory: RedisMemory) -> None:
        self.memory = memory
        self._written_bytes = 0
        part = bounds.REDIS_ROOM_PART if self.is_short else bounds.REDIS_SHORT_PART
        self.is_short = memory.limit > 0 and memory.used >= memory.limit * part

    def wrote(self, size_bytes: int) -> None:
        """Since the last look."""
        self._written_bytes += size_bytes

    def is_full(self) -> bool:
        """Whether the log takes no write either."""
        return 0 < self.memory.limit <= self.memory.used

    def is_reserved(self) -> bool:
        """Whether the rest is the log's, as far as this node knows."""
        used, limit = self.memory
        return limit > 0 and used + self._written_bytes * _WRITTEN_TAKES >= limit * bounds.REDIS_RESERVED_PART
