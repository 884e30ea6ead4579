"""Loads the sessions of slots that this core owns from the store, with retries.

Invariant: slots at one Redis server wait neither for another server nor for a slot that can't be read, or whose hash
slot is being moved. One that can't be read is tried again every SLOT_SPOILT_RETRY_S, because an operator may have
repaired it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final

from flockmq import bounds, tasks
from flockmq.durable.session_store import SessionStore, StoreFenced
from flockmq.durable.slot_reader import SlotContents, UnreadableSlot
from flockmq.logs import Retrying
from flockmq.redis.errors import StorageError

log: Final = logging.getLogger(__name__)


class SlotLoader:
    """`blank` returns the slots that must be loaded now, with their fences. `take_over` gets the contents of each.
    `done` is called when some slots are loaded, or were given up for now.
    """

    def __init__(
        self,
        store: SessionStore,
        blank: Callable[[], dict[int, str]],
        take_over: Callable[[int, str, SlotContents | StoreFenced | UnreadableSlot], Awaitable[None]],
        done: Callable[[], None],
        now_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._blank = blank
        self._take_over = take_over
        self._done = done
        self._under_way: dict[int, None] = {}
        self._tries: dict[int, int] = {}
        """How many times in a row loading the slot has failed."""
        self._dealing: asyncio.Task[None] | None = None
        self._loaders: dict[asyncio.Task[None], None] = {}
        self._stopped = False
        self._trouble = Retrying(log, now_s)

    async def stop(self) -> None:
        """Load no more slots."""
        self._stopped = True
        await tasks.end(*self._loaders, self._dealing)

    def look(self) -> None:
        """Check whether slots must be loaded."""
        if not self._stopped and (self._dealing is None or self._dealing.done()) and self._waiting():
            self._dealing = asyncio.ensure_future(self._deal())

    def _waiting(self) -> list[int]:
        return [number for number in self._blank() if number not in self._under_way]

    async def _deal(self) -> None:
        """Start one loader for each server."""
        tries = 0
        while waiting := self._waiting():
            try:
                groups = await self._store.apart(waiting)
            except StorageError as error:
                self._trouble.failed("%d slots of sessions wait for Redis: %s", len(waiting), error)
                await asyncio.sleep(_patience_s(tries))
                tries += 1
                continue
            except Exception:  # Otherwise no slot of this core would ever be loaded.
                log.exception("slots of sessions could not be taken; they are taken again")
                await asyncio.sleep(bounds.LOG_RETRY_MAX_S)
                continue
            for group in groups:
                self._under_way.update(dict.fromkeys(group))
                loader = asyncio.ensure_future(self._load(group))
                self._loaders[loader] = None
                loader.add_done_callback(self._loaders.pop)

    async def _load(self, group: list[int]) -> None:
        """Load slots that are on one server."""
        blank = self._blank()
        fences = {number: blank[number] for number in group if number in blank}
        left = fences.copy()
        try:
            async with aclosing(self._store.take_all(fences)) as slots:
                async for number, taken in slots:
                    self._trouble.worked()
                    self._tries.pop(number, None)
                    del left[number]
                    await self._take_over(number, fences[number], taken)
                    await asyncio.sleep(0)
        except StorageError as error:
            self._trouble.failed("%d slots of sessions wait for Redis: %s", len(left), error)
            self._done()
            await self._wait(left)
        except Exception:  # Otherwise these slots would never be loaded.
            log.exception("slots of sessions could not be taken; those that aren't here are taken again")
            await asyncio.sleep(bounds.LOG_RETRY_MAX_S)
        finally:
            for number in group:
                del self._under_way[number]
        self.look()
        self._done()

    async def _wait(self, slots: dict[int, str]) -> None:
        tries = max((self._tries.get(number, 0) for number in slots), default=0)
        self._tries.update(dict.fromkeys(slots, tries + 1))
        await asyncio.sleep(_patience_s(tries))


def _patience_s(tries: int) -> float:
    return float(min(bounds.LOG_RETRY_MIN_S * 2 ** min(tries, 16), bounds.LOG_RETRY_MAX_S))
