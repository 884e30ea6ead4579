"""Waiting for a Redis that isn't there yet."""

from __future__ import annotations

import pytest

from flockmq.config.schema import RedisSettings
from flockmq.errors import RedisUnavailable
from flockmq.node.redis_startup import wait_for_redis


async def test_the_same_trouble_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with pytest.raises(RedisUnavailable, match=r"can't be reached: .*; is it running there\? \(waited 1.1 s"):
        await wait_for_redis(RedisSettings(url="redis://127.0.0.1:1", connect_timeout=1.1))
    assert [record.levelname for record in caplog.records] == ["INFO"]
