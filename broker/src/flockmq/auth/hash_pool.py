"""The threads that hash passwords, and their bounded queue.

Invariants:
- Client addresses take turns, so a client that tries a thousand passwords delays only its own address.
- If the queue is full, the address with the most waiting jobs loses its last one.
- Clients that need the same hash share one job. So a fleet of devices with one password costs one hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar, cast

from flockmq.auth.addresses import network
from flockmq.bounds import HASH_GONE_MAX, HASH_SLICE_LOGINS, HASH_THREADS_MAX, HASHES_WAITING_MAX, VERIFIED_MAX
from flockmq.default_callbacks import never

T = TypeVar("T")


class Busy(Exception):
    """The queue has no room for this address. The client may try again later."""


class _Waiter(NamedTuple):
    done: asyncio.Future[object]
    is_gone: Callable[[], bool]

    def waits(self) -> bool:
        return not self.done.done() and not self.is_gone()


class _Job:
    __slots__ = ("_forget_gone_at", "address", "key", "waiters", "work")

    def __init__(self, work: Callable[[], object], key: bytes | None, address: str) -> None:
        self.work = work
        self.key = key
        self.address: str | None = address
        """The address in whose queue the job waits; None while it runs."""
        self.waiters: list[_Waiter] = []
        self._forget_gone_at = HASH_GONE_MAX

    def join(self, waiter: _Waiter) -> None:
        if len(self.waiters) >= self._forget_gone_at:
            gone = [one for one in self.waiters if not one.waits()]
            self.waiters = [one for one in self.waiters if one.waits()]
            self._forget_gone_at = 2 * len(self.waiters) + HASH_GONE_MAX
            _cancel(gone)
        self.waiters.append(waiter)


class HashPool:
    def __init__(self, threads: int = HASH_THREADS_MAX, room: int = HASHES_WAITING_MAX) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="hash")
        self._free = threads
        self._room = room
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        self._shared: dict[bytes, _Job] = {}
        """Waiting and running jobs, by key."""
        self.waiting = 0
        self.hashed = 0
        self.refused = 0

    async def run(
        self, address: str, work: Callable[[], T], is_gone: Callable[[], bool] = never, key: bytes | None = None
    ) -> T:
        """Run `work` in a thread and return its result. Callers with the same `key` share one run. Raises Busy, and
        CancelledError if all clients that wait for it have disconnected before it starts."""
        waiter = _Waiter(asyncio.get_running_loop().create_future(), is_gone)
        job = None if key is None else self._shared.get(key)
        if job is None:
            job = self._added(network(address), work, key)
        else:
            self._move_up(job, network(address))
        job.join(waiter)
        self._start()
        return cast(T, await waiter.done)

    def close(self) -> None:
        """Cancel waiting jobs. Running ones end by themselves."""
        for jobs in self._waiting.values():
            for job in jobs:
                _cancel(job.waiters)
        self._waiting.clear()
        self._shared.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _added(self, address: str, work: Callable[[], object], key: bytes | None) -> _Job:
        self._make_room(address)
        job = _Job(work, key, address)
        self._waiting.setdefault(address, deque()).append(job)
        self.waiting += 1
        if key is not None:
            self._shared[key] = job
        return job

    def _make_room(self, address: str) -> None:
        if self.waiting < self._room:
            return
        self.refused += 1
        fullest = max(self._waiting, key=lambda one: len(self._waiting[one]))
        if len(self._waiting[fullest]) <= len(self._waiting.get(address, ())) + 1:
            raise Busy
        self.waiting -= 1
        last = self._waiting[fullest].pop()
        self._forget(last)
        _resolve(last.waiters, lambda done: done.set_exception(Busy()))

    def _move_up(self, job: _Job, address: str) -> None:
        """Move a shared job to the queue of `address` if fewer jobs are ahead of it there."""
        if job.address is None or job.address == address:
            return
        jobs = self._waiting[job.address]
        if len(self._waiting.get(address, ())) < jobs.index(job):
            jobs.remove(job)
            self._waiting.setdefault(address, deque()).append(job)
            job.address = address

    def _forget(self, job: _Job) -> None:
        """No further caller may share this job."""
        if job.key is not None:
            self._shared.pop(job.key, None)

    def _start(self) -> None:
        while self._free and self._waiting:
            address, jobs = self._waiting.popitem(last=False)
            job = jobs.popleft()
            self.waiting -= 1
            if jobs:
                self._waiting[address] = jobs  # behind the others
            if not any(waiter.waits() for waiter in job.waiters):
                self._forget(job)
                _cancel(job.waiters)
                continue
            job.address = None
            self._free -= 1
            running = asyncio.get_running_loop().run_in_executor(self._executor, job.work)
            running.add_done_callback(lambda ended, job=job: self._ended(job, ended))  # type: ignore[misc]

    def _ended(self, job: _Job, ended: asyncio.Future[object]) -> None:
        self._free += 1
        self.hashed += 1
        self._forget(job)
        if ended.cancelled():
            _cancel(job.waiters)
        elif error := ended.exception():
            _resolve(job.waiters, lambda done: done.set_exception(error))
        else:
            _resolve(job.waiters, lambda done: done.set_result(ended.result()))
        self._start()


def _resolve(waiters: list[_Waiter], resolve: Callable[[asyncio.Future[object]], None]) -> None:
    """Hand out the result to HASH_SLICE_LOGINS callers per event-loop iteration, because each continues a CONNECT."""
    for waiter in waiters[:HASH_SLICE_LOGINS]:
        if not waiter.done.done():
            resolve(waiter.done)
    if len(waiters) > HASH_SLICE_LOGINS:
        asyncio.get_running_loop().call_soon(_resolve, waiters[HASH_SLICE_LOGINS:], resolve)


def _cancel(waiters: list[_Waiter]) -> None:
    for waiter in waiters:
        waiter.done.cancel()


class VerifiedPasswords:
    """A cache of passwords that matched, so that a fleet that reconnects after a failure is accepted at once.

    It stores a keyed digest of the password and of the hash that it matched. The key is a secret of this process. After
    a change of password the hash differs, so the old digest matches nothing.
    """

    def __init__(self, room: int = VERIFIED_MAX) -> None:
        self._key: Final = secrets.token_bytes(32)
        self._room = room
        self._sums: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sums)

    def knows(self, password: bytes, stored: str) -> bool:
        summed = self.sum(password, stored)
        if summed not in self._sums:
            return False
        self._sums.move_to_end(summed)
        return True

    def add(self, password: bytes, stored: str) -> None:
        self._sums[self.sum(password, stored)] = None
        if len(self._sums) > self._room:
            self._sums.popitem(last=False)

    def sum(self, password: bytes, stored: str) -> bytes:
        head = len(stored).to_bytes(4, "big") + stored.encode()
        return hashlib.blake2b(head + password, key=self._key, digest_size=16).digest()
