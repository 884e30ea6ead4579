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


class TurnQueue(Generic[T]):
    """What waits, by user: users take turns, what is one user's goes in order."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[bytes | None, deque[T]] = OrderedDict()
        """The user whose last turn is longest ago is first."""
        self._held: dict[bytes | None, deque[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting or self._held)

    def has_turn(self) -> bool:
        """True if something waits that isn't held."""
        return bool(self._waiting)

    def has(self, user: bytes | None) -> bool:
        """True if something of this user waits."""
        return user in self._waiting or user in self._held

    def append(self, user: bytes | None, item: T) -> None:
        held = self._held.get(user)
        (self._waiting.setdefault(user, deque()) if held is None else held).append(item)

    def hold(self, user: bytes | None, first: T) -> None:
        """What was just taken can't go on: it is the user's first again, which gets no turn before `release`."""
        items = self._waiting.pop(user, deque[T]())
        items.appendleft(first)
        self._held[user] = items

    def release(self) -> bool:
        """Those that are held get turns again. Returns False if none were."""
        had = bool(self._held)
        self._waiting.update(self._held)
        self._held.clear()
        return had

    def popleft(self) -> tuple[bytes | None, T]:
        """The first of the user whose turn it is."""
        user, items = self._waiting.popitem(last=False)
        item = items.popleft()
        if items:
            self._waiting[user] = items
        return user, item


class UserTurns(Generic[T]):
    """Steps are those of an iterator. Each yields None if it can go on, or else what it waits for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting = TurnQueue[tuple[Iterator[T | None], asyncio.Future[T | None]]]()
        self._is_due = False
        """Whether a call of `_go_on` is scheduled."""

    async def run(self, user: bytes, steps: Iterator[T | None]) -> T | None:
        """Run steps until one must wait; returns what for. None: all are done. Raises what a step raises."""
        ended: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(user, (steps, ended))
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
        user, work = self._waiting.popleft()
        steps, ended = work
        if ended.done():
            return  # It was cancelled.
        try:
            found = next(steps)
            if found is None:
                self._waiting.append(user, work)
            else:
                ended.set_result(found)
        except StopIteration:
            ended.set_result(None)
        except Exception as error:
            ended.set_exception(error)
