"""An owner of one slot, and one of a single session."""

from __future__ import annotations

import pytest

from flockmq.session.limits import Limits
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import SLOT, Owner
from unit.broker.durable.session_owner import SessionOwner


@pytest.fixture
def redis() -> Redis:
    return Redis()


@pytest.fixture
async def owner(redis: Redis) -> Owner:
    made = Owner(redis, "core-0@1", 1)
    await made.own(SLOT)
    return made


@pytest.fixture
def session_owner() -> SessionOwner:
    return SessionOwner(limits=Limits(max_inflight=3, max_mqueue_len=5))
