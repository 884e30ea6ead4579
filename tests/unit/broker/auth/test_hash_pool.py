"""Passwords are hashed beside the loop, an address behind its own only, and no more wait than there is room for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from flockmq.auth.hash_pool import Busy, HashPool, VerifiedPasswords
from flockmq.bounds import HASH_GONE_MAX


@pytest.fixture
async def pool() -> AsyncIterator[HashPool]:
    made = HashPool(threads=1, room=4)
    yield made
    made.close()


class Gate:
    """Work that waits until it is let go, so that what comes behind it stays in the queue."""

    def __init__(self, pool: HashPool) -> None:
        self._open = threading.Event()
        self._pool = pool
        self.task = asyncio.ensure_future(pool.run("gate", self._wait))

    def _wait(self) -> None:
        self._open.wait(30)

    async def closed(self) -> Gate:
        await asyncio.sleep(0)
        return self

    def open(self) -> None:
        self._open.set()


async def queued(pool: HashPool, address: str, name: str, order: list[str]) -> asyncio.Task[None]:
    task = asyncio.ensure_future(pool.run(address, lambda: order.append(name)))
    await asyncio.sleep(0)
    return task


async def test_work_runs_in_a_thread_and_its_result_or_error_comes_back(pool: HashPool) -> None:
    assert await pool.run("a", threading.get_ident) != threading.get_ident()
    with pytest.raises(ValueError, match="no"):
        await pool.run("a", lambda: int("no"))
    assert (pool.waiting, pool.hashed) == (0, 2)


async def test_addresses_take_turns(pool: HashPool) -> None:
    gate, order = await Gate(pool).closed(), []
    tasks = [await queued(pool, "evil", f"evil-{n}", order) for n in range(3)]
    tasks.append(await queued(pool, "good", "good", order))
    gate.open()
    await asyncio.gather(gate.task, *tasks)
    assert order == ["evil-0", "good", "evil-1", "evil-2"]


async def test_without_room_the_address_with_the_most_waiting_gives_way(pool: HashPool) -> None:
    gate, order = await Gate(pool).closed(), []
    evil = [await queued(pool, "evil", f"evil-{n}", order) for n in range(4)]
    with pytest.raises(Busy):
        await pool.run("evil", lambda: None)
    good = await queued(pool, "good", "good", order)
    with pytest.raises(Busy):
        await evil[3]
    assert pool.waiting == 4
    gate.open()
    await asyncio.gather(gate.task, *evil[:3], good)
    assert "good" in order
    assert pool.refused == 2


async def test_nothing_is_hashed_for_who_is_gone(pool: HashPool) -> None:
    gate = await Gate(pool).closed()
    gone = asyncio.ensure_future(pool.run("a", lambda: pytest.fail("hashed for nobody"), is_gone=lambda: True))
    await asyncio.sleep(0)
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await pool.run("a", lambda: 5) == 5


async def shared(pool: HashPool, address: str, *, is_gone: bool = False) -> asyncio.Task[int]:
    task = asyncio.ensure_future(pool.run(address, lambda: 5, lambda: is_gone, key=b"same"))
    await asyncio.sleep(0)
    return task


async def test_the_same_work_is_done_once_and_takes_one_room(pool: HashPool) -> None:
    gate = await Gate(pool).closed()
    tasks = [await shared(pool, f"a{n % 7}") for n in range(500)]
    assert pool.waiting == 1
    gate.open()
    assert await asyncio.gather(*tasks) == 500 * [5]
    assert pool.hashed == 2
    await (await shared(pool, "a"))
    assert pool.hashed == 3, "what has ended isn't shared any more"


async def test_the_same_work_is_joined_while_it_is_under_way(pool: HashPool) -> None:
    let_go = threading.Event()
    first = asyncio.ensure_future(pool.run("a", lambda: let_go.wait(30), key=b"same"))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(pool.run("b", lambda: pytest.fail("twice"), key=b"same"))
    await asyncio.sleep(0)
    let_go.set()
    assert (await first, await second) == (True, True)


async def test_work_is_done_for_those_who_are_still_there(pool: HashPool) -> None:
    gate = await Gate(pool).closed()
    gone, cancelled, there = await shared(pool, "a", is_gone=True), await shared(pool, "a"), await shared(pool, "a")
    cancelled.cancel()
    gate.open()
    assert await there == 5
    assert await gone == 5
    assert cancelled.cancelled()


async def test_who_shares_its_work_with_an_address_that_has_much_waiting_doesnt_wait_behind_it(pool: HashPool) -> None:
    gate, order = await Gate(pool).closed(), []
    evil = [await queued(pool, "evil", f"evil-{n}", order) for n in range(2)]
    first = asyncio.ensure_future(pool.run("evil", lambda: order.append("shared"), key=b"same"))
    await asyncio.sleep(0)
    joined = asyncio.ensure_future(pool.run("good", lambda: order.append("shared"), key=b"same"))
    other = await queued(pool, "other", "other", order)
    gate.open()
    await asyncio.gather(gate.task, *evil, first, joined, other)
    assert order == ["evil-0", "shared", "other", "evil-1"]


async def test_who_joined_hears_that_there_is_no_room(pool: HashPool) -> None:
    gate, order = await Gate(pool).closed(), []
    evil = [await queued(pool, "evil", f"evil-{n}", order) for n in range(3)]
    joined = [await shared(pool, "evil") for _ in range(100)]
    good = await queued(pool, "good", "good", order)
    for task in joined:
        with pytest.raises(Busy):
            await task
    gate.open()
    await asyncio.gather(gate.task, *evil, good)


async def test_those_who_came_and_went_are_forgotten_while_the_work_they_share_waits(pool: HashPool) -> None:
    gate = await Gate(pool).closed()
    there = await shared(pool, "a")
    gone = [await shared(pool, "a", is_gone=True) for _ in range(3 * HASH_GONE_MAX)]
    await asyncio.sleep(0)
    assert sum(not task.done() for task in gone) <= HASH_GONE_MAX + 2
    gate.open()
    assert await there == 5
    await asyncio.gather(*gone, return_exceptions=True)


async def test_what_waits_is_given_up_when_the_pool_closes() -> None:
    pool = HashPool(threads=1, room=4)
    gate = await Gate(pool).closed()
    waiting = await queued(pool, "a", "never", [])
    pool.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.open()
    await gate.task


def test_a_verified_password_is_known_again_for_the_same_hash_only() -> None:
    verified = VerifiedPasswords(room=2)
    verified.add(b"pw", "$hash$1")
    assert verified.knows(b"pw", "$hash$1")
    assert not verified.knows(b"pw", "$hash$2")
    assert not verified.knows(b"pw2", "$hash$1")
    verified.add(b"a", "h")
    assert verified.knows(b"pw", "$hash$1")
    verified.add(b"b", "h")
    assert len(verified) == 2
    assert not verified.knows(b"a", "h"), "the one that wasn't asked about for the longest went"
