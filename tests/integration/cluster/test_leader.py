"""The lease, against a real Valkey and a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from flockmq import bounds
from flockmq.membership.leader_lease import FENCE_KEY, LEASE_KEY, LeaderLease, Lease
from flockmq.redis.errors import RedisUnreachable
from flockmq.redis.link import RedisConfig, RedisLink
from flockmq.rlog.errors import LogFenced
from flockmq.rlog.schema import CLUSTER

from .conftest import Nodes, until

A, B = "core-0@00000001", "core-1@00000001"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def redis(valkey: RedisConfig) -> AsyncIterator[RedisLink]:
    link = RedisLink(valkey)
    yield link
    await link.close()


async def test_one_core_leads_until_it_gives_the_lease_back(redis: RedisLink) -> None:
    clock = Clock()
    first, second = Lease(redis, A, clock), Lease(redis, B, clock)
    fence = await first.take_or_renew()
    assert fence > 0
    assert await second.take_or_renew() == 0
    assert await first.take_or_renew() == fence
    await first.release()
    assert first.fence == 0
    assert await second.take_or_renew() == fence + 1
    assert await first.take_or_renew() == 0


async def test_a_leader_that_can_not_renew_steps_down_before_redis_lets_another_lead(redis: RedisLink) -> None:
    clock = Clock()
    lease = Lease(redis, A, clock)
    await lease.take_or_renew()
    left_ms = await redis.call("PTTL", LEASE_KEY)
    assert isinstance(left_ms, int)
    assert left_ms <= bounds.LEASE_TTL_S * 1000
    clock.now += bounds.LEASE_TTL_S - 0.001
    assert lease.fence
    clock.now += 0.001
    assert lease.fence == 0
    assert lease.remaining_s == 0


async def test_a_lease_that_ran_out_is_another_fence_to_its_old_holder(redis: RedisLink) -> None:
    lease = Lease(redis, A, Clock())
    fence = await lease.take_or_renew()
    await redis.call("DEL", LEASE_KEY)
    assert await lease.take_or_renew() == fence + 1


async def test_a_lease_that_was_taken_though_no_answer_came_is_renewed(
    redis: RedisLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(redis, A, Clock())
    fence = await lease.take_or_renew()
    await redis.call("DEL", LEASE_KEY)

    async def unanswered(commands: list[list[str]], *, repeats_write: bool) -> None:
        await redis.pipeline(commands)
        raise RedisUnreachable("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(redis, "write", unanswered)
        with pytest.raises(RedisUnreachable):
            await lease.take_or_renew()
    await redis.call("PEXPIRE", LEASE_KEY, 500)
    assert await lease.take_or_renew() == fence + 1
    left_ms = await redis.call("PTTL", LEASE_KEY)
    assert isinstance(left_ms, int)
    assert left_ms > 1000


async def test_a_late_release_leaves_the_next_leader_alone(redis: RedisLink) -> None:
    late, other = Lease(redis, A, Clock()), Lease(redis, B, Clock())
    await late.take_or_renew()
    await redis.call("DEL", LEASE_KEY)
    fence = await other.take_or_renew()
    await late.release()
    assert await other.take_or_renew() == fence


async def test_a_restarted_core_takes_over_from_its_former_self_only_at_its_first_try(redis: RedisLink) -> None:
    former, other = Lease(redis, A, Clock()), Lease(redis, "core-00@00000001", Clock())
    fence = await former.take_or_renew()
    assert await other.take_or_renew() == 0
    again = Lease(redis, "core-0@00000002", Clock())
    assert await again.take_or_renew() == fence + 1
    assert await former.take_or_renew() == 0


async def test_a_holder_whom_a_majority_can_not_reach_is_deposed_before_its_lease_runs_out(redis: RedisLink) -> None:
    old, new = Lease(redis, A, Clock()), Lease(redis, B, Clock())
    fence = await old.take_or_renew()
    assert await new.take_or_renew() == 0
    assert new.holder == A
    assert await new.take_or_renew(ignored_holder="core-0@0000000") == 0
    assert await new.take_or_renew(ignored_holder=A) == fence + 1
    assert await old.take_or_renew() == 0
    assert old.holder == B


async def test_a_core_that_hears_too_few_gives_the_lease_back(redis: RedisLink) -> None:
    lease, heard = Lease(redis, A, Clock()), [True]
    beats: list[int] = []

    async def duties() -> None:
        beats.append(lease.fence)

    leader = LeaderLease(lease, lambda: 1, lambda: heard[0], lambda holder: False, duties)
    running = asyncio.ensure_future(leader.run())
    await until(lambda: len(beats) == 2)
    heard[0] = False
    await until(lambda: lease.fence == 0)
    other = Lease(redis, B, Clock())
    assert await other.take_or_renew() == beats[0] + 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_round_amid_which_redis_is_emptied_fences_out_no_later_leader(
    nodes: Nodes, redis: RedisLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis counts leases from the beginning then, and the round goes on with the number of before."""
    monkeypatch.setattr(bounds, "LOG_CHECKPOINT_EVERY_S", 0.1)
    await redis.call("SET", FENCE_KEY, 1000)
    core = await nodes.start("core-0", "core")
    replicant = await nodes.start("replicant-0", "replicant")
    await nodes.settled()
    assert core.rlog.core is not None
    checkpoint, is_over = core.rlog.core.checkpoint, asyncio.Event()

    async def emptied_before(*args: Any) -> None:
        monkeypatch.setattr(core.rlog.core, "checkpoint", checkpoint)
        await redis.call("FLUSHALL")
        core.rlog.raise_alarm("it", "is written in the next generation")
        await until(lambda: core.rlog.applied(CLUSTER).generation == 2)
        with suppress(LogFenced):
            await checkpoint(*args)
        is_over.set()

    monkeypatch.setattr(core.rlog.core, "checkpoint", emptied_before)
    async with asyncio.timeout(10):
        await is_over.wait()
    await nodes.crash(replicant)
    await until(lambda: set(core.cluster.nodes_table) == {core.incarnation})
