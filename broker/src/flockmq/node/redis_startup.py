"""What the configuration says of Redis, and whether it can be used at all. A node asks once, at its start, so that the
answer is one clear line."""

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
"""In a cluster one master is asked."""


def redis_config(settings: RedisSettings) -> RedisConfig:
    """For links, from `[redis]`."""
    assert settings.url is not None, "the command line starts an embedded one where none is named"
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


async def wait_for_redis(settings: RedisSettings) -> None:
    """Return once it answers a PING. Raises RedisUnreachable: at once when it refuses us, else after the time given."""
    link = RedisLink(redis_config(settings), ANY_KEY)
    loop = asyncio.get_running_loop()
    deadline, trouble = loop.time() + settings.connect_timeout, Retrying(log, loop.time)
    try:
        while True:
            try:
                await link.call("PING")
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
