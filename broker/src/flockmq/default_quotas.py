"""The default quotas of users, by the memory of Redis and of the nodes. No I/O."""

from __future__ import annotations

from typing import NamedTuple

from flockmq import bounds
from flockmq.quotas import INFINITE, Held


class LeastMemory(NamedTuple):
    """In bytes; INFINITE: no limit, 0: unknown."""

    redis: int = 0
    """`maxmemory` of the smallest Redis server."""
    core: int = 0
    """What the smallest core may use. It may have to hold all durable sessions of a user."""
    node: int = 0
    """What the smallest node may use. Each node holds all filters, and all retained and delayed messages."""


def default_limits(least: LeastMemory) -> Held:
    """The default limits. One user may use at most half of the memory that all clients may use, of Redis
    (REDIS_SHORT_PART) and of each node (NODE_SHORT_PART)."""
    of_redis = least.redis or INFINITE
    of_core, of_node = _of_user(least.core), _of_user(least.node)
    return Held(
        min(
            bounds.QUOTA_SESSIONS,
            of_redis // 16 // bounds.SESSION_STORED_BYTES,
            of_core // 4 // bounds.SESSION_MEMORY_BYTES,
        ),
        min(bounds.QUOTA_QUEUED_BYTES, of_redis // 8, of_core // 4 // bounds.QUEUED_MEMORY_TIMES),
        min(bounds.QUOTA_SUBSCRIPTIONS, of_node // 8 // bounds.SUBSCRIPTION_MEMORY_BYTES),
        min(bounds.QUOTA_SUBSCRIPTION_BYTES, of_redis // 32, of_node // 8 // bounds.FILTER_MEMORY_TIMES),
        min(bounds.QUOTA_RETAINED_BYTES, of_redis // 8, of_node // 4 // bounds.RETAINED_MEMORY_TIMES),
    )


def _of_user(memory_bytes: int) -> int:
    """How much of a node's memory one user may use."""
    if memory_bytes in (0, INFINITE):
        return INFINITE
    room = int(memory_bytes * bounds.NODE_SHORT_PART) - bounds.NODE_EMPTY_BYTES
    return max(room, memory_bytes // bounds.NODE_ROOM_MIN_PARTS) // 2


class MaxMemory:
    """`maxmemory` of the smallest Redis server, as one core sees it. `size_bytes` is INFINITE if there is no limit, and
    0 at first.

    A higher value counts at once. A lower value, and the first one, count after QUOTA_SHRINKS_AFTER_S, because queues
    are cut to a smaller quota, and an operator may set a lower value only for a moment."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._smaller_since: float | None = None

    def look(self, size_bytes: int, now_s: float) -> None:
        """Record the current value; 0 if it is unknown."""
        if size_bytes == 0:
            return
        if not (size_bytes >= self.size_bytes > 0 or size_bytes == INFINITE):
            if self._smaller_since is None:
                self._smaller_since = now_s
            if now_s - self._smaller_since < bounds.QUOTA_SHRINKS_AFTER_S:
                return
        self._smaller_since = None
        self.size_bytes = size_bytes
