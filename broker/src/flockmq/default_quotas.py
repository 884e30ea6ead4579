"""The default quotas of users, by the memory of Redis. No I/O."""

from __future__ import annotations

from flockmq import bounds
from flockmq.quotas import INFINITE, Held


def default_limits(redis_bytes: int) -> Held:
    """The default limits. `redis_bytes` is `maxmemory` of the smallest Redis server, or 0 if it has none. One user may
    use at most half of the memory that all clients may use (REDIS_SHORT_PART)."""
    of_redis = redis_bytes or INFINITE
    return Held(
        min(bounds.QUOTA_SESSIONS, of_redis // 16 // bounds.SESSION_STORED_BYTES),
        min(bounds.QUOTA_QUEUED_BYTES, of_redis // 8),
        bounds.QUOTA_SUBSCRIPTIONS,
        min(bounds.QUOTA_SUBSCRIPTION_BYTES, of_redis // 32),
        min(bounds.QUOTA_RETAINED_BYTES, of_redis // 8),
    )


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
