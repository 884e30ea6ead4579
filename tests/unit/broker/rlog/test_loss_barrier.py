"""Waiting until Redis can't lose what the own tables have, by fakes of the other cores."""

from __future__ import annotations

import asyncio

import pytest

from flockmq import bounds
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import StreamId
from flockmq.rlog.generation import Report, has_reached
from flockmq.rlog.loss_barrier import LossBarrier
from flockmq.rlog.schema import ROUTE


class Cores:
    """Three, whose tables are at `others`, with this node's at `applied`."""

    def __init__(self) -> None:
        self.cores = 3
        self.applied = StreamId(1, 5)
        self.others = [StreamId(1, 4), StreamId(1, 4)]
        self.is_core = True
        self.asked = 0
        self.answered = asyncio.Event()
        self.answered.set()
        self.error: Exception | None = None
        self.barrier = LossBarrier(ROUTE, self, lambda: self.applied, lambda: self.is_core)

    async def ask(self, shard: str, generation: int) -> list[Report]:
        return []

    async def have_reached(self, shard: str, position: StreamId, needed: int) -> bool:
        self.asked += 1
        await self.answered.wait()
        if self.error is not None:
            raise self.error
        return sum(has_reached(other, position) for other in self.others) >= needed


@pytest.fixture
async def cores() -> Cores:
    return Cores()


@pytest.mark.parametrize("is_core", [True, False])
async def test_a_majority_of_the_cores_must_have_it(cores: Cores, is_core: bool) -> None:
    cores.is_core = is_core
    waiting = cores.barrier.wait()
    for number in range(1 if is_core else 2):
        await asyncio.sleep(3 * bounds.LOG_RETRY_MIN_S)
        assert not waiting.done()
        cores.others[number] = StreamId(1, 9)
    assert await asyncio.wait_for(waiting, 10) == StreamId(1, 5)


@pytest.mark.parametrize(("count", "others"), [(1, 0), (2, 0), (4, 1)])
async def test_half_of_the_cores_are_enough_because_no_majority_is_without_them(
    cores: Cores, count: int, others: int
) -> None:
    cores.cores, cores.others = count, [StreamId(1, 5)] * others
    assert await asyncio.wait_for(cores.barrier.wait(), 10) == StreamId(1, 5)


async def test_who_comes_while_cores_are_asked_waits_for_the_next_question_with_all_that_came(cores: Cores) -> None:
    cores.others = [StreamId(1, 9)] * 2
    cores.answered.clear()
    first = cores.barrier.wait()
    await asyncio.sleep(0)
    cores.applied = StreamId(1, 6)
    later = [cores.barrier.wait() for _ in range(3)]
    cores.answered.set()
    assert await asyncio.wait_for(first, 10) == StreamId(1, 5)
    assert await asyncio.wait_for(asyncio.gather(*later), 10) == [StreamId(1, 6)] * 3
    assert cores.asked == 2


async def test_what_the_tables_lost_is_not_waited_for(cores: Cores) -> None:
    cores.others = [StreamId(2, 9)] * 2
    waiting = cores.barrier.wait()
    await asyncio.sleep(3 * bounds.LOG_RETRY_MIN_S)
    assert not waiting.done(), "who is in a later generation may lack it"
    cores.applied = StreamId(2, 3)
    assert await asyncio.wait_for(waiting, 10) == StreamId(2, 3)


async def test_nobody_waits_for_good(cores: Cores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOG_WRITE_DEADLINE_S", 0.01)
    with pytest.raises(StorageUnavailable, match="too few cores had it"):
        await cores.barrier.wait()
    cores.error = OSError("unforeseen")
    with pytest.raises(StorageUnavailable, match="unforeseen"):
        await cores.barrier.wait()
    cores.error = None
    cores.answered.clear()
    running = cores.barrier.wait()
    await asyncio.sleep(0)
    waiting = cores.barrier.wait()
    await cores.barrier.stop()
    for done in (running, waiting):
        with pytest.raises(StorageUnavailable, match="stopping"):
            await done
