"""What one user may have at most where no setting says so."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.default_quotas import default_limits
from flockmq.quotas import Held

MIB = 1024 * 1024


@pytest.mark.parametrize("redis_bytes", [64 * MIB, 1024 * MIB, 64 * 1024 * MIB])
def test_by_default_no_user_makes_redis_short_of_memory(redis_bytes: int) -> None:
    limits = default_limits(redis_bytes)
    written_takes = 2
    takes = limits.sessions * bounds.SESSION_STORED_BYTES
    takes += (limits.queued_bytes + limits.subscription_bytes) * written_takes
    assert takes <= redis_bytes * bounds.REDIS_SHORT_PART / 2


def test_without_a_maxmemory_bounds_hold() -> None:
    assert default_limits(0) == Held(
        bounds.QUOTA_SESSIONS,
        bounds.QUOTA_QUEUED_BYTES,
        bounds.QUOTA_SUBSCRIPTIONS,
        bounds.QUOTA_SUBSCRIPTION_BYTES,
        bounds.QUOTA_RETAINED_BYTES,
    )
