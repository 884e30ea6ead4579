"""Events on their way to Redis: whatever becomes of them, nobody waits for long."""

from __future__ import annotations

from typing import cast

import pytest
from redis.exceptions import ResponseError

from flockmq.cluster.events import EventRelay, stream_of
from flockmq.rlog.errors import RedisUnreachable
from flockmq.rlog.redis import RedisLinks


class Redis:
    """One that is away, or refuses what goes to one of the streams."""

    def __init__(self, error: Exception, refused: str = "") -> None:
        self.error = error
        self.refused = refused
        self.asked = 0
        self.streams: list[str] = []

    async def of(self, key: str) -> Redis:
        self.asked += 1
        if not self.refused:
            raise self.error
        return self

    async def call(self, command: str, stream: str, *arguments: object) -> bytes:
        if stream == self.refused:
            raise self.error
        self.streams.append(stream)
        return b"1-1"


@pytest.fixture
def relay() -> EventRelay:
    relay = EventRelay(lambda: None)
    for kind in ("lag", "connections"):
        relay.buffer.add(kind, [("event",)])
    return relay


async def test_a_redis_that_is_away_is_asked_once_a_flush(relay: EventRelay) -> None:
    away = Redis(RedisUnreachable("Redis is away"))
    relay.redis = cast(RedisLinks, away)
    await relay.flush()
    assert away.asked == 1, "each by itself might wait for a connection"
    await relay.flush()
    assert away.asked == 1, "what couldn't be handed over is lost"


async def test_what_redis_refuses_of_one_kind_it_takes_of_the_other(relay: EventRelay) -> None:
    full = Redis(ResponseError("WRONGTYPE"), stream_of("connections"))
    relay.redis = cast(RedisLinks, full)
    await relay.flush()
    assert full.streams == [stream_of("lag")]
