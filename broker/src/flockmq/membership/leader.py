"""A core's leadership: it tries to get the lease, does the leader's duties while it holds it, and releases it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from flockmq import bounds
from flockmq.membership.leader_duties import LeaderDuties
from flockmq.membership.leader_lease import LEASE_KEY, LeaderLease, Lease
from flockmq.redis.link import RedisConfig, RedisLink
from flockmq.rlog.core import Core
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import CLUSTER

log: Final = logging.getLogger(__name__)


class Leader:
    """`run` it once this core is a member."""

    def __init__(self, incarnation: str, redis: RedisConfig, rlog: Rlog, core: Core, duties: LeaderDuties) -> None:
        self._incarnation = incarnation
        self._core = core
        self._duties = duties
        self._loop = asyncio.get_running_loop()
        self._link = RedisLink(redis, LEASE_KEY)
        lease = Lease(self._link, incarnation, self._loop.time)
        self._leader = LeaderLease(
            lease,
            lambda: rlog.applied(CLUSTER).generation,
            self._may_lead,
            self._is_unreachable_by_majority,
            self._lead,
        )

    @property
    def leads(self) -> bool:
        return self._leader.lease.fence > 0 and self._may_lead()

    @property
    def holds_lease(self) -> bool:
        return self._leader.lease.fence > 0

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._leader.run()

    async def leave(self) -> None:
        """A leader purges its own rows, and releases the lease so that another core leads at once."""
        if self.holds_lease:
            await self._best_effort(self._core.purge(self._incarnation, self._leader.fence))
        await self._leader.release()

    async def close(self) -> None:
        await self._link.close()

    def _may_lead(self) -> bool:
        return self._duties.may_lead(self._loop.time())

    def _is_unreachable_by_majority(self, incarnation: str) -> bool:
        return self._duties.is_unreachable_by_majority(incarnation, self._loop.time())

    async def _lead(self) -> None:
        await self._duties.run(self._loop.time(), self._leader.fence)

    async def _best_effort(self, purge: Awaitable[object]) -> None:
        """If it fails, the next leader purges them. A single node has no next leader."""
        try:
            async with asyncio.timeout(bounds.LEAVE_MAX_S):
                await purge
        except Exception as error:
            log.info("left without purging this node's rows, the next leader does: %s", error)
