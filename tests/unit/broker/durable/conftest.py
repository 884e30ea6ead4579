"""A home of one slot."""

from __future__ import annotations

import pytest

from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import SLOT, Home


@pytest.fixture
def redis() -> Redis:
    return Redis()


@pytest.fixture
async def home(redis: Redis) -> Home:
    made = Home(redis, "core-0@1", 1)
    await made.own(SLOT)
    return made
