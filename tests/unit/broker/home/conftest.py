"""A network of homes whose beats come all the time; a home of one slot."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from unit.broker.home.network import Network
from unit.broker.home.redis import Redis
from unit.broker.home.rooms import SLOT, Home


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    made = Network()
    yield made
    await made.stop()


@pytest.fixture
def redis() -> Redis:
    return Redis()


@pytest.fixture
async def home(redis: Redis) -> Home:
    made = Home(redis, "core-0@1", 1)
    await made.own(SLOT)
    return made
