"""The leader's lease: one key in Redis, held by at most one core at a time.

A core takes the key when it is free, with a new fence (a number that only grows, a fencing token), and renews it every
LEASE_RENEW_S. It trusts its lease for LEASE_TTL_S after it *sent* the last successful renewal, by its own monotonic
clock. So it steps down before Redis gives the key to another core; duties that take longer are cancelled. A restarted
core takes over the lease of its previous incarnation at once. While Redis is unreachable there is no leader, and that
is all.

A core that doesn't hear half of the cores releases the lease and doesn't try to get it. If a majority can't reach the
holder, another core may take the lease before it runs out. This is safe: that holder hears no majority either, so by
its own rule it no longer leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from redis.exceptions import ResponseError

from flockmq import bounds
from flockmq.logs import Retrying
from flockmq.membership.reachability import name_of
from flockmq.redis.errors import StorageError
from flockmq.redis.link import RedisLink, Reply
from flockmq.rlog.entry import StreamId

log: Final = logging.getLogger(__name__)

LEASE_KEY: Final = "flockmq:{cluster}:leader"
FENCE_KEY: Final = "flockmq:{cluster}:leader:fence"

_FULL_OR_NOT: Final = "#!lua flags=allow-oom"
"""The scripts run even if Redis is out of memory, so that there is always a leader."""
_TAKE_OR_RENEW: Final = f"""{_FULL_OR_NOT}
local held = redis.call('GET', KEYS[1])
local function is_of(name) return held and name ~= '' and string.sub(held, 1, #name) == name end
if is_of(ARGV[1] .. '|') then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return held
end
if held and not is_of(ARGV[3]) and not is_of(ARGV[4]) then return held end
local taken = ARGV[1] .. '|' .. redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], taken, 'PX', ARGV[2])
return taken
"""
_RELEASE: Final = f"""{_FULL_OR_NOT}
if redis.call('GET', KEYS[1]) == ARGV[1] .. '|' .. ARGV[2] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class Lease:
    """`fence` is 0 while this node doesn't lead. `holder`: the leader when Redis was last asked."""

    def __init__(self, redis: RedisLink, incarnation: str, clock: Callable[[], float]) -> None:
        self._redis = redis
        self._incarnation = incarnation
        self._clock = clock
        self.holder = ""
        self._fence = 0
        self._until = 0.0
        self._predecessor = f"{name_of(incarnation)}@"
        """The lease that is taken over at the first try: this node's own, from before its restart."""

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._until - self._clock())

    @property
    def fence(self) -> int:
        return self._fence if self._clock() < self._until else 0

    async def take_or_renew(self, ignored_holder: str = "") -> int:
        """Returns the fence; 0 if another core leads. `ignored_holder`: take over the lease if this incarnation holds
        it.

        Raises what the Redis client raises; then the lease runs out.
        """
        asked_at = self._clock()
        ttl_ms = str(int(bounds.LEASE_TTL_S * 1000))
        obstacle = f"{ignored_holder}|" if ignored_holder else ""
        answer = await self._eval(_TAKE_OR_RENEW, ttl_ms, self._predecessor, obstacle)
        if not isinstance(answer, bytes):
            raise TypeError(f"Redis answered the leader's script with {type(answer).__name__}, not a lease")
        self.holder, _, fence = answer.decode().rpartition("|")
        self._predecessor = ""
        self._fence = int(fence) if self.holder == self._incarnation else 0
        self._until = asked_at + bounds.LEASE_TTL_S if self._fence else 0.0
        return self.fence

    async def release(self) -> None:
        """Let another core lead at once."""
        fence, self._fence, self._until = self._fence, 0, 0.0
        if fence:
            await self._eval(_RELEASE, str(fence))

    async def _eval(self, script: str, *args: str) -> Reply:
        """A lease counts only when it survives a failover, so this waits for Redis' replicas as any write does. That
        holds for a renewal, too: the holder has written the key once."""
        call: list[str | int] = ["EVAL", script, 2, LEASE_KEY, FENCE_KEY, self._incarnation, *args]
        (reply,) = await self._redis.write([call], repeats_write=True)
        if isinstance(reply, ResponseError):
            raise reply
        return reply


class LeaderLease:
    """Tries to get the lease and, while it holds it, does the leader's duties.

    `generation`: that of the log, as far as this core has it. `may_lead`: this core isn't in a minority.
    `is_unreachable_by_majority`: a majority can't reach that incarnation.
    """

    def __init__(
        self,
        lease: Lease,
        generation: Callable[[], int],
        may_lead: Callable[[], bool],
        is_unreachable_by_majority: Callable[[str], bool],
        duties: Callable[[], Awaitable[None]],
    ) -> None:
        self.lease = lease
        self._generation = generation
        self._may_lead = may_lead
        self._is_unreachable_by_majority = is_unreachable_by_majority
        self._duties = duties
        self._led = 0
        self._asked_in = 0

    @property
    def fence(self) -> StreamId:
        """What the leader's writes to the log name: the generation in which the lease was asked for, and its number.

        When Redis has lost its data, it counts leases from the beginning, in a later generation. So a number of before
        never comes with that generation: it would be above all later ones.
        """
        return StreamId(self._asked_in, self.lease.fence)

    async def run(self) -> None:
        """Runs until cancelled. A failed duty is logged and retried in the next round."""
        waiting = Retrying(log, asyncio.get_running_loop().time)
        while True:
            try:
                await self._run_round()
                waiting.worked()
            except (StorageError, ResponseError, TimeoutError) as error:
                why = str(error) or type(error).__name__
                waiting.failed("the leader's round failed, next one in %s s: %s", bounds.LEASE_RENEW_S, why)
            except Exception:
                log.exception("the leader's round failed, next one in %s s", bounds.LEASE_RENEW_S)
            await asyncio.sleep(bounds.LEASE_RENEW_S)

    async def _run_round(self) -> None:
        if not self._may_lead():
            if self.lease.fence:
                log.warning("this node hears too few of the cores: it doesn't lead any more")
                async with asyncio.timeout(bounds.LEASE_TTL_S):
                    await self.lease.release()
            self._led = 0
            return
        holder = self.lease.holder
        asked_in = self._generation()
        async with asyncio.timeout(bounds.LEASE_TTL_S):
            fence = await self.lease.take_or_renew(holder if self._is_unreachable_by_majority(holder) else "")
        if fence and fence != self._led:
            log.info("this node leads the cluster (fence %d)", fence)
        elif self._led and not fence:
            log.warning("another core leads the cluster now")
        self._led, self._asked_in = fence, asked_in
        if fence:
            async with asyncio.timeout(self.lease.remaining_s):
                await self._duties()

    async def release(self) -> None:
        """Let another core lead at once; best effort."""
        try:
            async with asyncio.timeout(1.0):
                await self.lease.release()
        except Exception as error:
            log.info("could not give the lease back, it runs out in %s s: %s", bounds.LEASE_TTL_S, error)
