"""Work for many clients in small steps: in each event-loop iteration as many as fit a time slice, users in turn.

Invariants: however much work waits, an iteration ends after SLOT_WORK_MAX_S and a step. Users get equal shares, however
many of their clients have work.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from flockmq import bounds
from flockmq.clock import Clock

T = TypeVar("T")


class UserTurns(Generic[T]):
    """Steps are those of an iterator. Each yields None if it can go on, or else what it waits for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: OrderedDict[bytes, deque[tuple[Iterator[T | None], asyncio.Future[T | None]]]] = OrderedDict()
        """By user. The one whose last step is longest ago is first."""
        self._is_due = False
        """Whether a call of `_go_on` is scheduled."""

    async def run(self, user: bytes, steps: Iterator[T | None]) -> T | None:
        """Run steps until one must wait; returns what for. None: all are done. Raises what a step raises."""
        ended: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append((steps, ended))
        self._go_on_soon()
        return await ended

    def _go_on_soon(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        ends_s = self._clock.monotonic() + bounds.SLOT_WORK_MAX_S
        while self._waiting:
            self._step()
            if self._clock.monotonic() >= ends_s:
                break
        self._go_on_soon()

    def _step(self) -> None:
        """One step for the user whose turn it is."""
        user, works = self._waiting.popitem(last=False)
        work = works.popleft()
        steps, ended = work
        if not ended.done():  # Otherwise it was cancelled.
            try:
                found = next(steps)
                if found is None:
                    works.append(work)
                else:
                    ended.set_result(found)
            except StopIteration:
                ended.set_result(None)
            except Exception as error:
                ended.set_exception(error)
        if works:
            self._waiting[user] = works
