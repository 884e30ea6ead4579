"""How much of Redis' memory is used, and which writes may use the rest. No I/O.

If Redis has a `maxmemory`, queues and retained data stop at REDIS_SHORT_PART of it: from there on all nodes refuse
more. Writes already under way are accepted up to REDIS_RESERVED_PART. The rest is for the log itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from flockmq import bounds

_WRITTEN_TAKES: Final = 2
"""About how many bytes Redis uses per byte that is written to a session."""


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


class MemoryRoom:
    """The memory of one server."""

    def __init__(self) -> None:
        self.memory = RedisMemory(0, 0)
        self.is_short = False
        """Starts at REDIS_SHORT_PART, and ends below REDIS_ROOM_PART."""
        self._written_bytes = 0

    def looked(self, memory: RedisMemory) -> None:
        self.memory = memory
        self._written_bytes = 0
        part = bounds.REDIS_ROOM_PART if self.is_short else bounds.REDIS_SHORT_PART
        self.is_short = memory.limit > 0 and memory.used >= memory.limit * part

    def wrote(self, size_bytes: int) -> None:
        """Count bytes written since the last look."""
        self._written_bytes += size_bytes

    def is_full(self) -> bool:
        """True if not even the log can write."""
        return 0 < self.memory.limit <= self.memory.used

    def is_reserved(self) -> bool:
        """True if, as far as this node knows, the remaining memory is reserved for the log."""
        used, limit = self.memory
        return limit > 0 and used + self._written_bytes * _WRITTEN_TAKES >= limit * bounds.REDIS_RESERVED_PART
