"""A slow path to Redis: a node that is far behind catches up, however large entries are."""

import asyncio
import secrets

from flockmq import bounds
from flockmq.redis.link import RedisConfig
from flockmq.rlog.schema import RETAINED
from integration.redis_proxy import redis_proxy
from integration.rlog.steps import core_of, reaches, retained, start_tails, stop_tails


async def test_who_is_behind_by_more_than_arrives_in_the_time_of_a_reply_catches_up(nodes, valkey, monkeypatch) -> None:
    monkeypatch.setattr(bounds, "LOG_REPLY_MAX_S", 0.5)
    monkeypatch.setattr(bounds, "LOG_READ_BLOCK_S", 0.5)
    monkeypatch.setattr(bounds, "REDIS_REPLIES_MAX_S", 1.0)
    core = await nodes.core()
    async with redis_proxy(valkey.port) as proxy:
        other = await nodes.replicant(core_of(core), config=RedisConfig(f"redis://127.0.0.1:{proxy.port}"))
        await stop_tails(other)
        for number in range(bounds.LOG_READ_MAX_ENTRIES):
            await core.write(RETAINED, [retained(b"t%d" % number, secrets.token_bytes(250_000))])
        proxy.bytes_per_s = 4e6
        start_tails(other)
        async with asyncio.timeout(60):
            await reaches(other, RETAINED, core.applied(RETAINED))
        await other.stop()
