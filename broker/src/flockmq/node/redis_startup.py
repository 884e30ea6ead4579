"""The Redis configuration, and a check at the node's start: Redis answers, and no other cluster uses it. So a wrong
configuration gives one clear error."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from redis.exceptions import ResponseError

from flockmq.config.schema import RedisSettings
from flockmq.errors import RedisUnavailable
from flockmq.logs import Retrying
from flockmq.redis.errors import RedisRefused, RedisUnreachable
from flockmq.redis.link import RedisConfig, RedisLink

log = logging.getLogger(__name__)

RETRY_EVERY_S: Final = 0.5
ANY_KEY: Final = "flockmq:{cluster}:log"
"""In a Redis Cluster this key selects the master that is asked."""
NAME_KEY: Final = "flockmq:{cluster}:name"
"""Holds the name of the cluster that uses this Redis (`cluster.name`)."""
_CLAIM: Final = "#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1], ARGV[1], 'NX', 'GET')"
"""Sets the name if there is none. Returns the former name, or nil. Works on a full Redis too."""


def redis_config(settings: RedisSettings) -> RedisConfig:
    """Convert the section `[redis]`."""
    assert settings.url is not None, "without a URL the command line starts an embedded Redis"
    return RedisConfig(
        settings.url,
        username=settings.username,
        password=None if settings.password is None else settings.password.reveal(),
        password_file=settings.password_file,
        sentinel_password_file=settings.sentinel_password_file,
        cacertfile=settings.cacertfile,
        certfile=settings.certfile,
        keyfile=settings.keyfile,
        min_replicas=settings.min_replicas,
        wait_timeout_s=settings.wait_timeout,
    )


async def wait_for_redis(settings: RedisSettings, cluster: str = "") -> None:
    """Wait until Redis answers a PING. If `cluster` isn't empty, also claim the Redis for this cluster. Raises
    RedisUnavailable: at once if Redis refuses us or belongs to another cluster, else after `connect_timeout`."""
    link = RedisLink(redis_config(settings), ANY_KEY)
    loop = asyncio.get_running_loop()
    deadline, trouble = loop.time() + settings.connect_timeout, Retrying(log, loop.time)
    try:
        while True:
            try:
                await link.call("PING")
                if cluster:
                    await _claim(link, cluster)
            except (RedisRefused, ResponseError) as error:
                raise RedisUnavailable(f"redis.url: {settings.url} refuses us: {error}") from None
            except RedisUnreachable as error:
                if loop.time() >= deadline:
                    raise RedisUnavailable(
                        f"redis.url: {settings.url} can't be reached: {error}; is it running there? "
                        f"(waited {settings.connect_timeout:g} s, redis.connect_timeout)"
                    ) from None
                trouble.failed("waiting for Redis: %s", error)
                await asyncio.sleep(RETRY_EVERY_S)
            else:
                return
    finally:
        await link.close()


async def _claim(link: RedisLink, cluster: str) -> None:
    """Raises RedisUnavailable if this Redis belongs to another cluster."""
    holder = await link.call("EVAL", _CLAIM, 1, NAME_KEY, cluster)
    if isinstance(holder, bytes) and holder != cluster.encode():
        other = holder.decode(errors="replace")
        raise RedisUnavailable(
            f"redis.url: {link.address} has the state of the cluster {other}, and cluster.name here is {cluster}: give "
            f"each a Redis, or a database, of its own. If this one takes the other's place: delete the key {NAME_KEY}"
        )
