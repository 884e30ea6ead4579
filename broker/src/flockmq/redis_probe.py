"""Whether the named Redis can be used at all, asked once at a node's start, so that the answer is one clear line."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from flockmq.config.schema import Redis
from flockmq.errors import RedisUnreachable

log = logging.getLogger(__name__)

TRY_TIMEOUT_S: Final = 5.0
RETRY_EVERY_S: Final = 0.5


async def wait_for_redis(settings: Redis) -> None:
    """Return once it answers a PING. Raises RedisUnreachable: at once when it refuses us, else after the time given."""
    assert settings.url is not None
    client = redis.asyncio.Redis.from_url(
        settings.url,
        password=settings.password.reveal() if settings.password else None,
        socket_connect_timeout=TRY_TIMEOUT_S,
        socket_timeout=TRY_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )
    deadline = asyncio.get_running_loop().time() + settings.connect_timeout
    try:
        while True:
            try:
                await client.ping()
            except (AuthenticationError, ResponseError) as error:
                raise RedisUnreachable(
                    f"redis.url: {settings.url} refuses us: {error}; set redis.password_file to the right password"
                ) from None
            except (RedisError, OSError, ValueError) as error:
                if asyncio.get_running_loop().time() >= deadline:
                    raise RedisUnreachable(
                        f"redis.url: {settings.url} can't be reached: {_one_line(error)}; is it running there? "
                        f"(waited {settings.connect_timeout:g} s, redis.connect_timeout)"
                    ) from None
                log.warning("waiting for Redis at %s: %s", settings.url, _one_line(error))
                await asyncio.sleep(RETRY_EVERY_S)
            else:
                return
    finally:
        await client.aclose()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
