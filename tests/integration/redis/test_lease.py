"""The leader's lease on a Redis that is full: somebody leads all the same."""

from __future__ import annotations

import time

from flockmq.membership.leader_lease import Lease
from flockmq.redis.link import RedisConfig, RedisLink
from integration.redis.servers import Replicated

FIRST = "core-0@00000000000000000001"
SECOND = "core-1@00000000000000000001"


async def test_a_full_primary_with_replicas_has_a_leader(replicated: Replicated) -> None:
    link = RedisLink(RedisConfig(replicated.url, min_replicas=1), "flockmq:{cluster}:leader")
    try:
        first, second = Lease(link, FIRST, time.monotonic), Lease(link, SECOND, time.monotonic)
        replicated.primary.call("CONFIG", "SET", "maxmemory", 1)
        assert await first.take_or_renew() == 1
        assert await second.take_or_renew() == 0
        assert await first.take_or_renew() == 1
        await first.release()
        assert await second.take_or_renew() == 2
    finally:
        await link.close()
