"""One Redis is one cluster's: a core of another doesn't start there."""

from __future__ import annotations

import pytest

from flockmq.config.schema import RedisSettings
from flockmq.errors import RedisUnavailable
from flockmq.node.redis_startup import wait_for_redis
from integration.redis.servers import Clustered, Replicated, Server


async def test_the_first_cluster_stays_and_another_is_refused_though_redis_is_full(server: Server) -> None:
    settings = RedisSettings(url=server.url)
    await wait_for_redis(settings)
    server.call("CONFIG", "SET", "maxmemory", 1)
    await wait_for_redis(settings, "fleet/demo")
    await wait_for_redis(settings, "fleet/demo")
    await wait_for_redis(settings)
    with pytest.raises(RedisUnavailable, match="has the state of the cluster fleet/demo, and"):
        await wait_for_redis(settings, "b/c")
    server.call("DEL", "flockmq:{cluster}:name")
    await wait_for_redis(settings, "b/c")


async def test_behind_sentinels(replicated: Replicated) -> None:
    settings = RedisSettings(url=replicated.url)
    await wait_for_redis(settings, "a")
    with pytest.raises(RedisUnavailable, match="the cluster a,"):
        await wait_for_redis(settings, "b")


async def test_in_a_redis_cluster(clustered: Clustered) -> None:
    settings = RedisSettings(url=clustered.url)
    await wait_for_redis(settings, "a")
    with pytest.raises(RedisUnavailable, match="the cluster a,"):
        await wait_for_redis(settings, "b")
