"""Fresh tables of a shard, filled beside the live ones: from a core's, then from the log up to where that core was.

What always holds: what is handed out is whole, and was checked against the core's digests. A core's fresh tables are
never behind its live ones, for others may build on what it said.
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
"""Gives a core's tables of a shard, in frames."""


@dataclass(slots=True)
class Filling:
    """A shard's bootstraps on this node: how many, and the last one's duration and rows; how many entries of the log
    one that is under way has still to replay."""

    bootstraps: int = 0
    seconds: float = 0.0
    rows: int = 0
    replaying: int = 0


class TableFiller:
    """`read(shard, after, up to)` gives entries of the log. `votes`: it is a core's."""

    def __init__(
        self, source: Source, read: Callable[[str, StreamId, StreamId], AsyncIterator[LogEntry]], *, votes: bool
    ) -> None:
        self._source = source
        self._read = read
        self._votes = votes

    async def fill(self, live: Shard, filling: Filling, least_generation: Callable[[], int]) -> Shard:
        """Tables to be put in the place of `live`, which stand still meanwhile. Raises StorageError."""
        fresh = live.fresh()
        receiver, framer = snapshot_stream.BootstrapReceiver(fresh), snapshot_stream.Framer()
        async with aclosing(self._source(live.name)) as frames:
            async for frame in frames:
                receiver.take(framer.message(frame), apply_entry)
                await asyncio.sleep(0)
        if receiver.trailer is None:
            receiver.check()
        else:
            await self._replay(fresh, receiver.trailer.end, filling)
        receiver.check()
        if self._votes:
            await self._replay(fresh, live.applied, filling)
            if fresh.applied < live.applied or fresh.applied.generation < least_generation():
                raise StorageUnavailable(
                    f"shard {fresh.name} is at {fresh.applied} there, which is older than what is known here"
                )
        return fresh

    async def _replay(self, fresh: Shard, end: StreamId, filling: Filling) -> None:
        loop = asyncio.get_running_loop()
        turn_ends = loop.time() + bounds.LOG_TURN_MAX_S
        try:
            async for entry in self._read(fresh.name, fresh.applied, end):
                filling.replaying = entries_between(fresh.applied, end)
                apply_entry(fresh, entry)
                if loop.time() >= turn_ends:
                    await asyncio.sleep(0)
                    turn_ends = loop.time() + bounds.LOG_TURN_MAX_S
        finally:
            filling.replaying = 0
