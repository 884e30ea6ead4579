"""The threads in which passwords are hashed: as many at once as there are, no more waiting than there is room for.

What always holds: an address waits behind its own passwords only. Addresses take turns; where there is no room left,
the one that has the most waiting loses its last. So whoever tries a thousand passwords costs itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, cast

from flockmq.auth.addresses import network
from flockmq.bounds import HASH_THREADS_MAX, HASHES_WAITING_MAX, VERIFIED_MAX

T = TypeVar("T")


class Busy(Exception):
    """There is no room for this address; it may come again later."""


class _Job:
    __slots__ = ("done", "is_gone", "work")

    def __init__(self, work: Callable[[], object], is_gone: Callable[[], bool], done: asyncio.Future[object]) -> None:
        self.work = work
        self.is_gone = is_gone
        self.done = done


class HashPool:
    def __init__(self, threads: int = HASH_THREADS_MAX, room: int = HASHES_WAITING_MAX) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="hash")
        self._free = threads
        self._room = room
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        self.waiting = 0
        self.hashed = 0
        self.refused = 0

    async def run(self, address: str, work: Callable[[], T], is_gone: Callable[[], bool] = lambda: False) -> T:
        """What `work` returns, done in a thread. Raises Busy, and CancelledError if `is_gone` before its turn."""
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._make_room(network(address))
        self._waiting.setdefault(network(address), deque()).append(_Job(work, is_gone, done))
        self.waiting += 1
        self._start()
        return cast(T, await done)

    def close(self) -> None:
        """What waits is given up; what runs ends by itself."""
        for jobs in self._waiting.values():
            for job in jobs:
                job.done.cancel()
        self._waiting.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _make_room(self, address: str) -> None:
        if self.waiting < self._room:
            return
        self.refused += 1
        fullest = max(self._waiting, key=lambda one: len(self._waiting[one]))
        if len(self._waiting[fullest]) <= len(self._waiting.get(address, ())) + 1:
            raise Busy
        self.waiting -= 1
        last = self._waiting[fullest].pop()
        if not last.done.done():
            last.done.set_exception(Busy())

    def _start(self) -> None:
        while self._free and self._waiting:
            address, jobs = self._waiting.popitem(last=False)
            job = jobs.popleft()
            self.waiting -= 1
            if jobs:
                self._waiting[address] = jobs  # behind the others
            if job.done.done():
                continue
            if job.is_gone():
                job.done.cancel()
                continue
            self._free -= 1
            running = asyncio.get_running_loop().run_in_executor(self._executor, job.work)
            running.add_done_callback(lambda ended, job=job: self._ended(job, ended))  # type: ignore[misc]

    def _ended(self, job: _Job, ended: asyncio.Future[object]) -> None:
        self._free += 1
        self.hashed += 1
        if not job.done.done():
            if ended.cancelled():
                job.done.cancel()
            elif error := ended.exception():
                job.done.set_exception(error)
            else:
                job.done.set_result(ended.result())
        self._start()


class Verified:
    """Passwords that were found right, so that a fleet that comes back after a failure is let in at once.

    What is kept is a sum keyed with a secret of this process, of the password and the very hash that it was right for:
    with another password the user's hash is another, and the sum is worth nothing.
    """

    def __init__(self, room: int = VERIFIED_MAX) -> None:
        self._key: Final = secrets.token_bytes(32)
        self._room = room
        self._sums: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sums)

    def knows(self, password: bytes, stored: str) -> bool:
        summed = self._sum(password, stored)
        if summed not in self._sums:
            return False
        self._sums.move_to_end(summed)
        return True

    def add(self, password: bytes, stored: str) -> None:
        self._sums[self._sum(password, stored)] = None
        if len(self._sums) > self._room:
            self._sums.popitem(last=False)

    def _sum(self, password: bytes, stored: str) -> bytes:
        head = len(stored).to_bytes(4, "big") + stored.encode()
        return hashlib.blake2b(head + password, key=self._key, digest_size=16).digest()
