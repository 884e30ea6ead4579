"""The log's `routes` table, which answers when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import PUT, Op, StreamId
from flockmq.rlog.errors import LogFull


class RouteLog:
    """The `routes` table with a write behind it; `answer` applies the oldest write that waits, or fails it."""

    def __init__(self) -> None:
        self.rows: dict[bytes, set[str]] = {}
        self.submitted = asyncio.Event()
        self.on_apply: Callable[[Op], None] = lambda op: None
        self.is_full = False
        """It has no room for another write."""
        self._waiting: list[tuple[Sequence[Op], asyncio.Future[StreamId]]] = []

    def submit(self, ops: Sequence[Op], user: bytes = b"") -> asyncio.Future[StreamId]:
        done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
        if self.is_full:
            done.set_exception(LogFull("much waits"))
            return done
        self._waiting.append((ops, done))
        self.submitted.set()
        return done

    def holders(self, filter: bytes) -> set[str]:
        return self.rows.get(filter, set())

    def waiting(self) -> int:
        return len(self._waiting)

    def asked(self) -> list[Sequence[Op]]:
        """The writes that wait."""
        return [ops for ops, _ in self._waiting]

    async def answer(self, applied: bool = True) -> None:
        """Callbacks ran when it returns."""
        ops, done = self._waiting.pop(0)
        if not self._waiting:
            self.submitted.clear()
        if applied:
            self.apply(ops)
            done.set_result(StreamId(1, 1))
        else:
            done.set_exception(StorageUnavailable("the log is away"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def apply(self, ops: Sequence[Op]) -> None:
        for op in ops:
            _, kind, incarnation, filter, _ = op
            holders = self.rows.setdefault(filter, set())
            if kind == PUT:
                holders.add(incarnation)
            else:
                holders.discard(incarnation)
            self.on_apply(op)
