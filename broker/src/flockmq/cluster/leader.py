"""The leader's lease: one key in Redis, held by at most one core at a time.

A core takes the key when it is free, with a new fence (a number that only grows), and renews it every LEASE_RENEW_S.
It believes in its lease until LEASE_TTL_S after it *sent* the last renewal that succeeded, by its own monotonic
clock, so it steps down before Redis gives the key to another; duties that last longer are broken off. A core that was
restarted takes over the lease of its former self at once. Redis away means no leader, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from flockmq import bounds
from flockmq.cluster.membership import name_of
from flockmq.rlog.redis import RedisLink

log: Final = logging.getLogger(__name__)

LEASE_KEY: Final = "flockmq:{cluster}:leader"
FENCE_KEY: Final = "flockmq:{cluster}:leader:fence"

_TAKE_OR_RENEW: Final = """
local held = redis.call('GET', KEYS[1])
if held == ARGV[1] .. '|' .. ARGV[2] then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return tonumber(ARGV[2])
end
local predecessor = ARGV[4]
if held and (predecessor == '' or string.sub(held, 1, #predecessor) ~= predecessor) then return 0 end
local fence = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], ARGV[1] .. '|' .. fence, 'PX', ARGV[3])
return fence
"""
_RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] .. '|' .. ARGV[2] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class Lease:
    """`fence` is 0 when this node doesn't lead."""

    def __init__(self, redis: RedisLink, incarnation: str, clock: Callable[[], float]) -> None:
        self._redis = redis
        self._incarnation = incarnation
        self._clock = clock
        self._fence = 0
        self._until = 0.0
        self._predecessor = f"{name_of(incarnation)}@"
        """Whose lease is taken over at the first try: this node's own, from before it was restarted."""

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._until - self._clock())

    @property
    def fence(self) -> int:
        return self._fence if self._clock() < self._until else 0

    async def take_or_renew(self) -> int:
        """The fence, 0 when another core leads. Raises what the Redis client raises; the lease then runs out."""
        asked_at = self._clock()
        ttl_ms = str(int(bounds.LEASE_TTL_S * 1000))
        answer = await self._eval(_TAKE_OR_RENEW, str(self._fence), ttl_ms, self._predecessor)
        self._predecessor = ""
        self._fence = answer
        self._until = asked_at + bounds.LEASE_TTL_S if answer else 0.0
        return self.fence

    async def release(self) -> None:
        """Let another core lead at once."""
        fence, self._fence, self._until = self._fence, 0, 0.0
        if fence:
            await self._eval(_RELEASE, str(fence))

    async def _eval(self, script: str, *args: str) -> int:
        answer = await self._redis.call("EVAL", script, 2, LEASE_KEY, FENCE_KEY, self._incarnation, *args)
        if not isinstance(answer, int):
            raise TypeError(f"Redis answered the leader's script with {type(answer).__name__}, not a number")
        return answer


class Leader:
    """Runs for the lease and, while it is held, the leader's duties."""

    def __init__(self, lease: Lease, on_elected: Callable[[], None], duties: Callable[[], Awaitable[None]]) -> None:
        self.lease = lease
        self._on_elected = on_elected
        self._duties = duties

    async def run(self) -> None:
        """Until cancelled. A duty that fails is logged and tried again at the next beat."""
        led = 0
        while True:
            try:
                async with asyncio.timeout(bounds.LEASE_TTL_S):
                    fence = await self.lease.take_or_renew()
                if fence and fence != led:
                    log.info("this node leads the cluster (fence %d)", fence)
                    self._on_elected()
                elif led and not fence:
                    log.warning("another core leads the cluster now")
                led = fence
                if fence:
                    async with asyncio.timeout(self.lease.remaining_s):
                        await self._duties()
            except Exception as error:
                log.warning(
                    "the leader's beat failed, next one in %s s: %s: %s",
                    bounds.LEASE_RENEW_S,
                    type(error).__name__,
                    error,
                )
            await asyncio.sleep(bounds.LEASE_RENEW_S)

    async def release(self) -> None:
        """Let another core lead at once; best effort."""
        try:
            async with asyncio.timeout(1.0):
                await self.lease.release()
        except Exception as error:
            log.warning("could not give the lease back, it runs out in %s s: %s", bounds.LEASE_TTL_S, error)
