"""What only a core does for the log: commit, vote, stream its tables, write snapshots, purge, trim.

Core is the local CorePort. The cluster's links offer it to other nodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from random import Random
from typing import BinaryIO

from flockmq import bounds, tasks
from flockmq.redis.errors import StorageError, StorageUnavailable
from flockmq.redis.link import RedisConfig
from flockmq.redis.memory import share_of
from flockmq.rlog import snapshot, snapshot_stream
from flockmq.rlog.committer import Committer
from flockmq.rlog.disk import Disk
from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.generation import Report
from flockmq.rlog.generation_change import GenerationChange
from flockmq.rlog.ports import VotePort
from flockmq.rlog.reading import apply_entry
from flockmq.rlog.repair import alarm_of
from flockmq.rlog.replica import Replica
from flockmq.rlog.schema import SHARDS
from flockmq.rlog.voter import Voter

log = logging.getLogger(__name__)


class Core:
    """`replica` is this node's own. Snapshots are written to `disk`. `on_lost`: see GenerationChange."""

    def __init__(
        self,
        config: RedisConfig,
        name: str,
        replica: Replica,
        disk: Disk,
        votes: VotePort,
        on_lost: Callable[[str, str], None],
        random: Random,
    ) -> None:
        self.voter = Voter(name, replica, disk)
        self._election = GenerationChange(self.voter, votes, replica.tables, on_lost)
        self.committer = Committer(config, self._election, self.voter, random)
        self.appended: dict[str, int] = dict.fromkeys(SHARDS, 0)
        """Transactions that this core wrote to each shard, for any node."""
        self._replica = replica
        self._disk = disk
        self._durable: dict[str, StreamId] = dict.fromkeys(SHARDS, START)
        self._found_wrong: dict[str, int] = dict.fromkeys(SHARDS, 0)
        """How often the shard's tables were."""
        self._sending: dict[str, list[StreamId]] = {shard: [] for shard in SHARDS}
        self._retention: dict[str, _Retention] = {shard: _Retention() for shard in SHARDS}
        self._snapshots: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Load the snapshots as the initial tables. One that can't be read is logged and stays: the shard comes
        from the log or another core, but isn't begun anew (generation.UNREADABLE)."""
        for shard in SHARDS:
            fresh = self._replica.tables.shards[shard].fresh()
            try:
                position = await snapshot.load(self._disk, fresh, apply_entry)
            except LogCorrupt as error:
                log.error("snapshot of shard %s is refused: %s", shard, error)
                self.voter.unreadable.add(shard)
                continue
            if position is not None:
                self._replica.adopt(fresh)
                self._durable[shard] = position
        await self.voter.load()

    async def start(self) -> None:
        """Settle the log, then accept appends. Raises RedisUnreachable."""
        await self.committer.start()
        self._snapshots = tasks.restartable(self._snapshot_forever, "rlog-snapshots")

    async def stop(self) -> None:
        """Write the last snapshots, then stop."""
        if self._snapshots is not None:
            await tasks.end(self._snapshots)
            await self._snapshot_all()
        await self.committer.stop()

    # --- CorePort ---

    async def register(self, shard: str, incarnation: str) -> StreamId:
        return await self.committer.register(shard, incarnation)

    async def append(self, shard: str, incarnation: str, first: int, transactions: Sequence[bytes]) -> StreamId:
        appended = await self.committer.append(shard, incarnation, first, transactions)
        self.appended[shard] += len(transactions)
        return appended

    async def bootstrap(self, shard: str) -> AsyncGenerator[bytes]:
        if shard not in SHARDS or not self._replica.in_step(shard):
            raise StorageUnavailable(f"this core has no shard {shard!r} in step with the log")
        start = self._replica.tables.shards[shard].applied
        self._sending[shard].append(start)
        try:
            async for frame in snapshot_stream.frames(self._replica.tables, shard):
                yield frame
        finally:
            self._sending[shard].remove(start)

    # --- for other cores ---

    async def report(self, shard: str, generation: int) -> Report:
        """Return this core's log position and its promise (generation.py). Raises StorageUnavailable."""
        return await self.voter.report(shard, generation)

    def has_begun(self, shard: str) -> bool:
        """See Election."""
        return self._election.has_begun(shard)

    def sending(self) -> dict[str, StreamId]:
        """Shards that this core streams to other nodes now → the log position from which these still need the log."""
        return {shard: min(starts) for shard, starts in self._sending.items() if starts}

    def distrust(self, shard: str) -> None:
        """The shard's tables are wrong. Remove its snapshot too, and don't count it as on disk any more."""
        self._replica.distrust(shard)
        self._found_wrong[shard] += 1
        self._durable[shard] = START
        self._remove_snapshot(shard)

    # --- for the leader; `fence`: LeaderLease.fence ---

    async def purge(self, incarnation: str, fence: StreamId) -> None:
        """Delete all rows of a dead node and refuse its late writes, in every shard. Repeating it is harmless. Raises
        StorageUnavailable."""
        for shard in SHARDS:
            await self.committer.purge(shard, incarnation, fence)

    async def checkpoint(self, shard: str, fence: StreamId) -> None:
        """Make all nodes compare their digests, if the shard changed since the last checkpoint, or if digests differed
        there and may agree now. Raises StorageUnavailable."""
        tables = self._replica.tables
        state = tables.shards[shard]
        differed = any(name.startswith(f"{alarm_of(shard)}/") for name, _ in tables.alarms.items())
        if differed or state.applied not in state.checkpoints:
            await self.committer.checkpoint(shard, fence)

    def durable(self, shard: str) -> StreamId:
        """The log position up to which this core's disk has the shard."""
        return self._durable[shard]

    async def trim(self, shard: str, durable: StreamId, fence: StreamId) -> StreamId | None:
        """Trim the log below `durable`, the position that a majority of the cores has on disk. Keep what this core's
        snapshot and running bootstraps still need, and a retention window for nodes that were offline. Return the first
        position that is kept, or None if nothing may be trimmed yet. Raises StorageUnavailable."""
        keep_from = self._retention[shard].keep_from
        if keep_from is None:
            return None
        keep_from = min([keep_from, durable, self._durable[shard], *self._sending[shard]])
        await self.committer.trim(shard, keep_from, fence)
        return keep_from

    # --- snapshots ---

    def limit(self, redis_bytes: int) -> None:
        """Set how much memory Redis has; 0 means unlimited or unknown."""
        for retention in self._retention.values():
            retention.redis_bytes = redis_bytes

    def applied(self, shard: str, size: int) -> None:
        """The replica applied an entry of this many bytes."""
        self._retention[shard].add(self._replica.tables.shards[shard].applied, size)

    async def snapshot(self, shard: str) -> StreamId:
        """Write a snapshot now. Raises OSError, StorageUnavailable."""
        async with self._writing:
            found_wrong = self._found_wrong[shard]
            position = await snapshot.write(self._disk, self._replica.tables, shard, self._replica.read)
            if self._replica.is_distrusted(shard) or found_wrong != self._found_wrong[shard]:
                self._remove_snapshot(shard)
                raise StorageUnavailable(f"shard {shard}: the tables that were written are wrong")
            self._durable[shard] = position
        return position

    async def saved(self, shard: str) -> BinaryIO:
        """Open a snapshot of what the tables hold now. A later snapshot leaves the open file as it is. Raises OSError,
        StorageUnavailable."""
        if shard not in SHARDS or not self._replica.in_step(shard):
            raise StorageUnavailable(f"this core has no shard {shard!r} in step with the log")
        if self._replica.tables.shards[shard].applied != self._durable[shard]:
            await self.snapshot(shard)
        return await asyncio.to_thread(self._disk.open, snapshot.name_of(shard))

    def _remove_snapshot(self, shard: str) -> None:
        """The snapshot holds wrong tables, so this core must not start from it."""
        name = snapshot.name_of(shard)
        try:
            self._disk.remove(name)
        except OSError as error:
            log.error("%s is wrong, and can't be removed: %s", self._disk.path(name), error.strerror)

    async def _snapshot_forever(self) -> None:
        while True:
            await asyncio.sleep(bounds.SNAPSHOT_EVERY_S)
            await self._snapshot_all()

    async def _snapshot_all(self) -> None:
        for shard in SHARDS:
            if self._replica.is_distrusted(shard) or self._replica.tables.shards[shard].applied == self._durable[shard]:
                continue
            try:
                await self.snapshot(shard)
            except (OSError, StorageError) as error:
                log.error("snapshot of shard %s in %s: %s", shard, self._disk.folder, error)


class _Retention:
    """Sampled log positions, from which the start of the last `max_bytes` of the log is known without asking Redis."""

    def __init__(self) -> None:
        self.redis_bytes = 0
        """How much memory Redis has; 0 means unlimited or unknown."""
        self._samples: deque[tuple[StreamId, int]] = deque()  # a position, and the bytes applied up to it
        self._bytes = 0

    def add(self, stream_id: StreamId, size: int) -> None:
        self._bytes += size
        if not self._samples or self._bytes - self._samples[-1][1] >= self.max_bytes // 64:
            self._samples.append((stream_id, self._bytes))
        while len(self._samples) > 1 and self._bytes - self._samples[1][1] >= self.max_bytes:
            self._samples.popleft()

    @property
    def max_bytes(self) -> int:
        return share_of(self.redis_bytes, bounds.LOG_RETENTION_BYTES)

    @property
    def keep_from(self) -> StreamId | None:
        """The newest sample with at least `max_bytes` of log after it."""
        if not self._samples or self._bytes - self._samples[0][1] < self.max_bytes:
            return None
        return self._samples[0][0]
