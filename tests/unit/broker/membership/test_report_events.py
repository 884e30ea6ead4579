"""Events on their way to Redis: whatever becomes of them, nobody waits for long."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest
from redis.exceptions import ResponseError

from flockmq import bounds
from flockmq.clock import SYSTEM
from flockmq.membership.event_batches import COLUMNS, EventBuffer
from flockmq.membership.report_events import NO_ROOM, UNREACHABLE, EventExport, stream_of
from flockmq.redis.errors import RedisUnreachable
from flockmq.redis.link import RedisLinks


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

    async def call(self, command: str, *arguments: object) -> bytes | int:
        if command in ("MEMORY", "HMGET"):
            return 0
        stream = str(arguments[0])
        if stream == self.refused:
            raise self.error
        self.streams.append(stream)
        return b"1-1"


def event(kind: str) -> tuple[object, ...]:
    return (0,) * len(COLUMNS[kind])


@pytest.fixture
def relay() -> EventExport:
    relay = EventExport(EventBuffer("core-0", "core-0@1"), lambda: None, SYSTEM.monotonic)
    for kind in ("lag", "connections"):
        relay.buffer.add(kind, [event(kind)])
    return relay


async def test_a_redis_that_is_away_is_asked_once_a_flush(relay: EventExport) -> None:
    away = Redis(RedisUnreachable("Redis is away"))
    relay.redis = cast(RedisLinks, away)
    await relay.flush()
    assert away.asked == 1, "each by itself might wait for a connection"
    await relay.flush()
    assert away.asked == 1, "what couldn't be handed over is lost"


async def test_what_redis_refuses_of_one_kind_it_takes_of_the_other(relay: EventExport) -> None:
    full = Redis(ResponseError("WRONGTYPE"), stream_of("connections"))
    relay.redis = cast(RedisLinks, full)
    await relay.flush()
    assert full.streams == [stream_of("lag")]


async def test_what_is_lost_is_counted(relay: EventExport, monkeypatch: pytest.MonkeyPatch) -> None:
    relay.redis = cast(RedisLinks, Redis(RedisUnreachable("Redis is away")))
    await relay.flush()
    both_bytes = relay.lost_bytes[UNREACHABLE]
    assert both_bytes > 0
    relay.redis = cast(RedisLinks, Redis(ResponseError("WRONGTYPE"), stream_of("lag")))
    relay.buffer.add("lag", [event("lag")])
    await relay.flush()
    lag_bytes = relay.lost_bytes[UNREACHABLE] - both_bytes
    assert 0 < lag_bytes < both_bytes
    relay.redis = None
    relay.buffer.add("lag", [event("lag")])
    await relay.flush()
    assert relay.lost_bytes[UNREACHABLE] == both_bytes + 2 * lag_bytes, "a replicant without a core"
    monkeypatch.setattr(bounds, "EVENTS_NOTES_MAX", 2)
    for _ in range(3):
        relay.received("replicant-1@1", msgspec.msgpack.encode(("lag", b"12345")))
    assert relay.lost_bytes[NO_ROOM] == 5
    monkeypatch.setattr(bounds, "EVENTS_MAX", 1)
    relay.buffer.add("lag", [event("lag"), event("lag")])
    assert relay.buffer.dropped == 1


async def test_a_redis_that_does_not_say_how_large_a_stream_is_gets_events_all_the_same(relay: EventExport) -> None:
    class Unmeasured(Redis):
        async def call(self, command: str, *arguments: object) -> bytes | int:
            if command == "MEMORY":
                raise ResponseError("NOPERM")
            return await super().call(command, *arguments)

    redis = Unmeasured(ResponseError("WRONGTYPE"), "none of them")
    relay.redis = cast(RedisLinks, redis)
    await relay.flush()
    assert redis.streams == [stream_of("connections"), stream_of("lag")]
