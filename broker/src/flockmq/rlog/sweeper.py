"""Frees rows that are already deleted: those of purged owners, and the tables that a bootstrap replaced. It frees one
bucket per step, and lets the event loop run in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from flockmq import bounds, tasks
from flockmq.rlog.tables import Shard, Tables

log: Final = logging.getLogger(__name__)

_DONE: Final = object()


class Sweeper:
    """`swept` is called for each shard whose rows may have been freed, after the listeners were told."""

    def __init__(self, tables: Tables, swept: Callable[[Shard], None]) -> None:
        self._tables = tables
        self._swept = swept
        self._retiring: list[Iterator[None]] = []
        self._task: asyncio.Task[None] | None = None

    def retire(self, replaced: Shard) -> None:
        self._retiring.append(replaced.retire())

    def sweep_if_needed(self) -> None:
        is_needed = self._retiring or not all(shard.is_swept for shard in self._tables.shards.values())
        if is_needed and self._task is None and self._step():
            self._task = asyncio.create_task(self._sweep(), name="rlog-sweep")

    async def stop(self) -> None:
        await tasks.end(self._task)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        slice_ends = loop.time() + bounds.LOG_TURN_MAX_S
        try:
            while self._step():
                if loop.time() >= slice_ends:
                    await asyncio.sleep(0)
                    slice_ends = loop.time() + bounds.LOG_TURN_MAX_S
        except Exception:
            log.exception("deleted rows can't be freed; the next log entry tries again")
        self._task = None

    def _step(self) -> bool:
        """Free one bucket of purged rows per shard, and one of a replaced table. Returns whether there is more to
        do."""
        if self._retiring and next(self._retiring[0], _DONE) is _DONE:
            self._retiring.pop(0)
        unswept = [shard for shard in self._tables.shards.values() if not shard.is_swept]
        has_more = [shard.sweep() for shard in unswept]
        for shard in unswept:
            if shard.is_whole:
                self._swept(shard)
        return any(has_more) or bool(self._retiring)
