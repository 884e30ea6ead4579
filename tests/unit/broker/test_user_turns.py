"""Work for many clients: a slice of it in each iteration, users in turn, and each told when it must wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from flockmq.bounds import SLOT_WORK_MAX_S
from flockmq.clock import Clock
from flockmq.user_turns import TurnQueue, UserTurns


class Worker:
    """Each step takes half a slice of its own clock, and is noted as (user, iteration)."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.iteration = 0
        self.done: list[tuple[bytes, int]] = []
        self.turns: UserTurns[str] = UserTurns(Clock(lambda: self.now_s, lambda: self.now_s))

    def steps(self, user: bytes, count: int, waits_for: str | None = None) -> Iterator[str | None]:
        for _ in range(count):
            self.now_s += SLOT_WORK_MAX_S / 2
            self.done.append((user, self.iteration))
            yield waits_for

    async def count_iterations(self) -> None:
        while True:
            self.iteration += 1
            await asyncio.sleep(0)


@pytest.fixture
async def worker() -> Worker:
    return Worker()


async def test_an_iteration_has_a_slice_of_the_work_however_many_wait(worker: Worker) -> None:
    counting = asyncio.ensure_future(worker.count_iterations())
    await asyncio.gather(*(worker.turns.run(b"%d" % number, worker.steps(b"u", 3)) for number in range(10)))
    counting.cancel()
    iterations = [iteration for _, iteration in worker.done]
    assert len(iterations) == 30
    assert max(iterations.count(each) for each in iterations) <= 3, "a slice, and a step"


async def test_users_take_turns_however_many_of_their_clients_wait(worker: Worker) -> None:
    many = [worker.turns.run(b"many", worker.steps(b"many", 5)) for _ in range(10)]
    await asyncio.gather(*many, worker.turns.run(b"one", worker.steps(b"one", 5)))
    assert [user for user, _ in worker.done[:10]] == [b"many", b"one"] * 5


async def test_who_must_wait_is_told_what_for_and_goes_on_there(worker: Worker) -> None:
    steps = worker.steps(b"u", 2, "room")
    assert await worker.turns.run(b"u", steps) == "room"
    assert len(worker.done) == 1
    assert await worker.turns.run(b"u", steps) == "room"
    assert await worker.turns.run(b"u", steps) is None


async def test_what_fails_or_is_cancelled_leaves_the_others(worker: Worker) -> None:
    def failing() -> Iterator[str | None]:
        yield None
        raise ValueError

    cancelled = asyncio.ensure_future(worker.turns.run(b"c", worker.steps(b"c", 1)))
    await asyncio.sleep(0)
    cancelled.cancel()
    failed, fine = await asyncio.gather(
        worker.turns.run(b"f", failing()), worker.turns.run(b"u", worker.steps(b"u", 3)), return_exceptions=True
    )
    assert isinstance(failed, ValueError)
    assert fine is None
    assert [user for user, _ in worker.done] == [b"u"] * 3


def test_who_is_held_still_waits() -> None:
    queue = TurnQueue[int]()
    queue.append(b"u", 1)
    assert (queue.has(b"u"), queue.has(None)) == (True, False)
    queue.hold(*queue.popleft())
    assert (queue.has(b"u"), queue.has_turn()) == (True, False)
    queue.release()
    assert queue.popleft() == (b"u", 1)
    assert not queue.has(b"u")
