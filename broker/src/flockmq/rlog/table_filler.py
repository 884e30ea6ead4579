"""Fills fresh tables of a shard beside the live ones: first from a core's, then from the log up to where that core was.

Invariants: returned tables are complete, and were checked against the core's digests. A core's fresh tables are never
behind its live ones, because others may rely on what it reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from flockmq import bounds
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog import snapshot_stream
from flockmq.rlog.entry import StreamId
from flockmq.rlog.reading import apply_entry, entries_between
from flockmq.rlog.snapshot_stream import LogEntry
from flockmq.rlog.tables import Shard

Source = Callable[[str], AsyncGenerator[bytes]]
"""Streams a core's tables of a shard, in frames."""


@dataclass(slots=True)
class BootstrapStats:
    """A shard's bootstraps on this node: their number, the last one's duration and rows, and how many log entries the
    running one still has to replay."""

    bootstraps: int = 0
    seconds: float = 0.0
    rows: int = 0
    replaying: int = 0


class TableFiller:
    """`read(shard, after, up to)` reads log entries. `is_core`: this node is a core."""

    def __init__(
        self, source: Source, read: Callable[[str, StreamId, StreamId], AsyncIterator[LogEntry]], *, is_core: bool
    ) -> None:
        self._source = source
        self._read = read
        self._is_core = is_core

    async def fill(self, live: Shard, bootstrap_stats: BootstrapStats, least_generation: Callable[[], int]) -> Shard:
        """Fill tables that can replace `live`, which must not change meanwhile. Raises StorageError."""
        fresh = live.fresh()
        receiver, framer = snapshot_stream.SnapshotReceiver(fresh), snapshot_stream.Framer()
        async with aclosing(self._source(live.name)) as frames:
            async for frame in frames:
                receiver.take(framer.message(frame), apply_entry)
                await asyncio.sleep(0)
        if receiver.trailer is None:
            receiver.check()
        else:
            await self._replay(fresh, receiver.trailer.end, bootstrap_stats)
        receiver.check()
        if self._is_core:
            await self._replay(fresh, live.applied, bootstrap_stats)
            if fresh.applied < live.applied or fresh.applied.generation < least_generation():
                raise StorageUnavailable(
                    f"shard {fresh.name} is at {fresh.applied} there, which is older than what is known here"
                )
        return fresh

    async def _replay(self, fresh: Shard, end: StreamId, bootstrap_stats: BootstrapStats) -> None:
        loop = asyncio.get_running_loop()
        slice_ends = loop.time() + bounds.LOG_TURN_MAX_S
        try:
            async for entry in self._read(fresh.name, fresh.applied, end):
                bootstrap_stats.replaying = entries_between(fresh.applied, end)
                apply_entry(fresh, entry)
                if loop.time() >= slice_ends:
                    await asyncio.sleep(0)
                    slice_ends = loop.time() + bounds.LOG_TURN_MAX_S
        finally:
            bootstrap_stats.replaying = 0
