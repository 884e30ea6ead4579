"""The threads in which passwords are hashed, and a queue that is bounded.

What always holds: an address waits behind its own passwords only. Addresses take turns. If there is no room left, the
address with the most waiting loses its last. So who tries a thousand passwords harms only itself. A client that needs a
hash that is under way, or waits, shares it and takes no room: a fleet with one password costs one hash.
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

T = TypeVar("T")


class Busy(Exception):
    """There is no room for this address; it may come again later."""


class _Asker(NamedTuple):
    done: asyncio.Future[object]
    is_gone: Callable[[], bool]

    def waits(self) -> bool:
        return not self.done.done() and not self.is_gone()


class _Job:
    __slots__ = ("_forget_gone_at", "address", "askers", "key", "work")

    def __init__(self, work: Callable[[], object], key: bytes | None, address: str) -> None:
        self.work = work
        self.key = key
        self.address: str | None = address
        """Whose turn it waits for; None: it is under way."""
        self.askers: list[_Asker] = []
        self._forget_gone_at = HASH_GONE_MAX

    def join(self, asker: _Asker) -> None:
        if len(self.askers) >= self._forget_gone_at:
            gone = [one for one in self.askers if not one.waits()]
            self.askers = [one for one in self.askers if one.waits()]
            self._forget_gone_at = 2 * len(self.askers) + HASH_GONE_MAX
            _cancel(gone)
        self.askers.append(asker)


class HashPool:
    def __init__(self, threads: int = HASH_THREADS_MAX, room: int = HASHES_WAITING_MAX) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="hash")
        self._free = threads
        self._room = room
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        self._shared: dict[bytes, _Job] = {}
        """Those that wait or are under way, by key."""
        self.waiting = 0
        self.hashed = 0
        self.refused = 0

    async def run(
        self,
        address: str,
        work: Callable[[], T],
        is_gone: Callable[[], bool] = lambda: False,
        key: bytes | None = None,
    ) -> T:
        """Do `work` in a thread, and return what it returns. Work with the same `key` is the same, and is done once.
        Raises Busy, and CancelledError if all who wait for it are gone before its turn."""
        asker = _Asker(asyncio.get_running_loop().create_future(), is_gone)
        job = None if key is None else self._shared.get(key)
        if job is None:
            job = self._added(network(address), work, key)
        else:
            self._move_up(job, network(address))
        job.join(asker)
        self._start()
        return cast(T, await asker.done)

    def close(self) -> None:
        """Work that waits is given up; work that runs ends by itself."""
        for jobs in self._waiting.values():
            for job in jobs:
                _cancel(job.askers)
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
        _tell(last.askers, lambda done: done.set_exception(Busy()))

    def _move_up(self, job: _Job, address: str) -> None:
        """Queue it at the address where fewer stand before it."""
        if job.address is None or job.address == address:
            return
        jobs = self._waiting[job.address]
        if len(self._waiting.get(address, ())) < jobs.index(job):
            jobs.remove(job)
            self._waiting.setdefault(address, deque()).append(job)
            job.address = address

    def _forget(self, job: _Job) -> None:
        """Nobody joins it any more."""
        if job.key is not None:
            self._shared.pop(job.key, None)

    def _start(self) -> None:
        while self._free and self._waiting:
            address, jobs = self._waiting.popitem(last=False)
            job = jobs.popleft()
            self.waiting -= 1
            if jobs:
                self._waiting[address] = jobs  # behind the others
            if not any(asker.waits() for asker in job.askers):
                self._forget(job)
                _cancel(job.askers)
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
            _cancel(job.askers)
        elif error := ended.exception():
            _tell(job.askers, lambda done: done.set_exception(error))
        else:
            _tell(job.askers, lambda done: done.set_result(ended.result()))
        self._start()


def _tell(askers: list[_Asker], tell: Callable[[asyncio.Future[object]], None]) -> None:
    """Hand out results, some a turn, because each makes a client go on."""
    for asker in askers[:HASH_SLICE_LOGINS]:
        if not asker.done.done():
            tell(asker.done)
    if len(askers) > HASH_SLICE_LOGINS:
        asyncio.get_running_loop().call_soon(_tell, askers[HASH_SLICE_LOGINS:], tell)


def _cancel(askers: list[_Asker]) -> None:
    for asker in askers:
        asker.done.cancel()


class Verified:
    """Passwords that were found right, so that a fleet that comes back after a failure is let in at once.

    What is kept is a sum of the password and of the hash that it was right for, keyed with a secret of this process. If
    the user gets another password, the hash is another, and the sum is worth nothing.
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
