"""What one user may have at most where no setting says so."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.default_quotas import LeastMemory, default_limits
from flockmq.quotas import INFINITE, Held
from flockmq.rlog.schema import CLAIMS, DELAYED, MESSAGES, ROUTES, SHARES

MIB = 1024 * 1024


@pytest.mark.parametrize("redis_bytes", [64 * MIB, 1024 * MIB, 64 * 1024 * MIB])
def test_by_default_no_user_makes_redis_short_of_memory(redis_bytes: int) -> None:
    limits = default_limits(LeastMemory(redis_bytes))
    written_takes = 2
    takes = limits.sessions * bounds.SESSION_STORED_BYTES
    takes += (limits.queued_bytes + limits.subscription_bytes) * written_takes
    assert takes <= redis_bytes * bounds.REDIS_SHORT_PART / 2


@pytest.mark.parametrize("mib", [192, 256, 512, 1024, 16 * 1024])
def test_by_default_no_user_takes_more_than_half_of_the_room_of_a_node(mib: int) -> None:
    limits = default_limits(LeastMemory(INFINITE, mib * MIB, mib * MIB))
    takes = limits.sessions * bounds.SESSION_MEMORY_BYTES + limits.subscriptions * bounds.SUBSCRIPTION_MEMORY_BYTES
    takes += limits.queued_bytes * bounds.QUEUED_MEMORY_TIMES + limits.retained_bytes * bounds.RETAINED_MEMORY_TIMES
    takes += limits.subscription_bytes * bounds.FILTER_MEMORY_TIMES
    assert 0 < takes <= (mib * MIB * bounds.NODE_SHORT_PART - bounds.NODE_EMPTY_BYTES) / 2


def test_by_default_no_user_fills_half_of_a_table_of_the_log() -> None:
    """However small the messages are, and whatever kind of filters it has."""
    limits = default_limits(LeastMemory())
    for table in (MESSAGES, DELAYED):
        assert limits.retained_bytes <= table.max_bytes / 2
        assert limits.retained_bytes / (bounds.RETAINED_MESSAGE_BYTES + len("t")) <= table.max_rows / 2
    for table_of_filters in (ROUTES, SHARES, CLAIMS):
        assert limits.subscriptions <= table_of_filters.max_rows / 2


def test_a_container_that_has_hardly_room_for_a_node_has_quotas_too() -> None:
    assert all(default_limits(LeastMemory(INFINITE, 64 * MIB, 64 * MIB)))


def test_only_what_each_node_holds_follows_the_smallest_node() -> None:
    bound = default_limits(LeastMemory())
    limits = default_limits(LeastMemory(node=512 * MIB))
    assert (limits.sessions, limits.queued_bytes) == (bound.sessions, bound.queued_bytes)
    assert limits.retained_bytes < bound.retained_bytes
    assert limits.subscriptions < bound.subscriptions


def test_without_a_maxmemory_bounds_hold() -> None:
    assert default_limits(LeastMemory()) == Held(
        bounds.QUOTA_SESSIONS,
        bounds.QUOTA_QUEUED_BYTES,
        bounds.QUOTA_SUBSCRIPTIONS,
        bounds.QUOTA_SUBSCRIPTION_BYTES,
        bounds.QUOTA_RETAINED_BYTES,
    )
