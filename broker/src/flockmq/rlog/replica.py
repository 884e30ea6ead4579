"""This node's copy of the tables, kept in step with Redis by reading the end of the log, and by bootstraps.

Invariants: the live tables of a shard are at one log position, and never half filled. If the next entry doesn't follow
(the log was trimmed beyond this node, or continues from another position), the node bootstraps the shard from a core
into separate tables. The live tables stay in use until these are swapped in.

A log is *closed* if it ends before what this node applied, or if its generation is below the one that this core
promised (generation.py). Nothing of a closed log is applied. A core never goes back to an earlier position, because
others may rely on what it reported.

A node only reads here. XREAD, XRANGE and XREVRANGE on `flockmq:{shard}:log` are all the rights it needs.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Sequence

from redis.exceptions import ResponseError

from flockmq import bounds, tasks
from flockmq.logs import Retrying
from flockmq.redis.errors import StorageError, StorageUnavailable
from flockmq.redis.link import RedisConfig, RedisLink, RedisLinks, Reply
from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.errors import LogCorrupt, LogLost
from flockmq.rlog.reading import (
    LogEnds,
    NotNext,
    ReadSize,
    apply_entry,
    check_next,
    entries_between,
    entries_of,
    log_key,
)
from flockmq.rlog.schema import SHARDS
from flockmq.rlog.snapshot_stream import LogEntry
from flockmq.rlog.sweeper import Sweeper
from flockmq.rlog.table_filler import BootstrapStats, Source, TableFiller
from flockmq.rlog.tables import Shard, Tables

log = logging.getLogger(__name__)


class Replica:
    """`source` streams a core's tables. `on_applied(shard, size)` is called after entries of `size` bytes, or a
    bootstrap (0), were applied. `log_end` returns the furthest known position of a shard. `is_core`: this node is a
    core."""

    def __init__(
        self,
        config: RedisConfig,
        source: Source | None,
        on_applied: Callable[[str, int], None],
        log_end: Callable[[str], StreamId],
        *,
        is_core: bool,
    ) -> None:
        self.tables = Tables()
        self.bootstraps = 0
        self.on_entry: dict[str, list[Callable[[StreamId], None]]] = {shard: [] for shard in SHARDS}
        """Called after each entry and each bootstrap, when its tables are complete and before anything else runs. Also
        called after rows of purged nodes were swept."""
        self.bootstrap_stats: dict[str, BootstrapStats] = {shard: BootstrapStats() for shard in SHARDS}
        self._is_core = is_core
        self._filler = None if source is None else TableFiller(source, self.read, is_core=is_core)
        self._on_applied = on_applied
        self._log_end = log_end
        self._tail_links = [
            (RedisLink(config, log_key(group[0]), by_hand=True), group) for group in config.by_server(SHARDS)
        ]
        self._side_links = RedisLinks(config)
        self._bootstrapping: dict[str, asyncio.Task[None]] = {}
        self._tails: list[asyncio.Task[None]] = []
        self._sweeper = Sweeper(self.tables, self._entry_applied)
        self._ends: dict[str, StreamId] = {}
        """The known end of the log on the server behind the reader's connection."""
        self._answered_at: dict[str, float] = {}
        """When Redis last answered the reader of the shard."""
        self._required_generation: dict[str, int] = {}
        self._behind_since: dict[str, float] = {}
        self._distrusted: set[str] = set()
        self._caught_up = asyncio.Event()
        self._log_ends = LogEnds()

    async def start(self, blank: bool) -> None:
        """Return when every shard has reached the end of its log, after a bootstrap where one is needed (`blank`: in
        every shard). Raises RedisUnreachable and LogLost at once; waits for cores as long as it takes."""
        for link, _ in self._tail_links:
            await link.connect()
        if blank:
            for shard in SHARDS:
                self.bootstrap(shard)
            await asyncio.gather(*self._bootstrapping.values())
        self._start_tails()
        caught_up = asyncio.create_task(self._caught_up.wait())
        done, _ = await asyncio.wait([*self._tails, caught_up], return_when=asyncio.FIRST_COMPLETED)
        if caught_up not in done:
            caught_up.cancel()
            await asyncio.gather(*(tail for tail in self._tails if tail in done))

    async def stop(self) -> None:
        await tasks.end(*self._tails, *self._bootstrapping.values())
        await self._sweeper.stop()
        for link, _ in self._tail_links:
            await link.close()
        await self._side_links.close()

    async def read(self, shard: str, after: StreamId, up_to: StreamId) -> AsyncIterator[LogEntry]:
        """Read the entries in (after, up_to]. Raises StorageUnavailable if Redis doesn't hold all of them."""
        read_size = ReadSize()
        while after < up_to:
            command = ("XRANGE", log_key(shard), f"({after}", str(up_to), "COUNT", read_size.entries)
            reply = await self._read_reply(await self._side_links.of(log_key(shard)), *command)
            if not reply:
                raise StorageUnavailable(f"shard {shard}: Redis holds no log between {after} and {up_to}")
            entries = list(entries_of(reply))
            read_size.came(entries)
            for entry in entries:
                try:
                    check_next(entry, after)
                except NotNext as error:
                    raise StorageUnavailable(
                        f"shard {shard}: Redis holds not all of the log from {after}: {error}"
                    ) from None
                yield entry
                after = entry.stream_id

    def unapplied(self, shard: str) -> int:
        """How many entries are known to be in Redis but not applied here yet."""
        return entries_between(self.tables.shards[shard].applied, self._ends.get(shard, START))

    def has_all(self, shard: str, when: str) -> bool:
        """True if the shard's tables surely have everything that its log held when the newest applied entry of shard
        `when` was written."""
        end = self._log_ends.end(shard, when, self.tables.shards[when].applied)
        return end is not None and end <= self.tables.shards[shard].applied

    def in_step(self, shard: str) -> bool:
        """The shard's tables are usable: not blank, not about to be replaced, and Redis answers the reader of its
        log."""
        if not self._caught_up.is_set() or shard in self._bootstrapping or shard in self._distrusted:
            return False
        return asyncio.get_running_loop().time() - self._answered_at[shard] <= bounds.LOG_UNHEARD_MAX_S

    def redis_silent_s(self) -> float:
        """Seconds since Redis last answered the readers; with several servers, of the one that is silent for
        longest."""
        now = asyncio.get_running_loop().time()
        return now - min(self._answered_at.values(), default=now)

    def require_generation(self, shard: str, generation: int) -> None:
        """From now on, apply nothing of a log that has not reached this generation."""
        self._required_generation[shard] = generation

    def distrust(self, shard: str) -> None:
        """The tables are wrong: send them to nobody until a bootstrap has replaced them."""
        self._distrusted.add(shard)

    def is_distrusted(self, shard: str) -> bool:
        return shard in self._distrusted

    def bootstrap(self, shard: str) -> None:
        """Bootstrap the shard in the background, and retry until it works. Raises LogLost if there is no source."""
        if self._filler is None:
            raise LogLost(
                f"shard {shard}: the log in Redis does not continue from {self.tables.shards[shard].applied}, where "
                "this core's tables are, and no other core can be asked for newer ones"
            )
        if shard not in self._bootstrapping:
            task = asyncio.create_task(self._bootstrap_until_done(shard), name=f"rlog-bootstrap-{shard}")
            self._bootstrapping[shard] = task

    # --- the tail ---

    def _start_tails(self) -> None:
        self._tails = [
            asyncio.create_task(self._run_tail(link, shards), name=f"rlog-tail-{shards[0]}")
            for link, shards in self._tail_links
        ]

    async def _run_tail(self, link: RedisLink, shards: Sequence[str]) -> None:
        """Read the shards of one server, forever."""
        retry_s = bounds.LOG_RETRY_MIN_S
        waiting = Retrying(log, asyncio.get_running_loop().time)
        while True:
            try:
                await link.connect()
                read_size = ReadSize()
                connected_at = asyncio.get_running_loop().time()
                for shard in shards:
                    self._ends.pop(shard, None)
                self._log_ends.forget()
                while True:
                    await self._check_closed(link, shards, connected_at)
                    self._note_caught_up()
                    await self._read_once(link, shards, read_size)
                    retry_s = bounds.LOG_RETRY_MIN_S
                    if all(map(self._is_open, shards)):
                        waiting.worked()
            except StorageError as error:
                if isinstance(error, LogLost) and not self._caught_up.is_set():
                    raise
                waiting.failed("tail of the log: %s", error)
            except Exception:
                if not self._caught_up.is_set():
                    raise
                log.exception("tail of the log")
            await link.close()
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)

    def _note_caught_up(self) -> None:
        """When every shard has reached the end that its log had when the connection was made, this node has caught
        up."""
        shards = self.tables.shards
        if not self._bootstrapping and all(
            shard in self._ends and self._is_open(shard) and shards[shard].applied >= self._ends[shard]
            for shard in SHARDS
        ):
            self._caught_up.set()

    async def _read_once(self, link: RedisLink, of: Sequence[str], read_size: ReadSize) -> None:
        """Send one XREAD for all open shards and apply what it returns. It blocks only if there was nothing to read."""
        waiting = [shard for shard in of if shard not in self._bootstrapping]
        shards = [shard for shard in waiting if self._is_open(shard)]
        block_s = bounds.LOG_READ_BLOCK_S if len(shards) == len(waiting) else bounds.LOG_CLOSED_LOOK_S
        if not shards:
            if bootstrapping := [self._bootstrapping[shard] for shard in of if shard in self._bootstrapping]:
                await asyncio.wait(bootstrapping, timeout=block_s, return_when=asyncio.FIRST_COMPLETED)
                if not waiting:
                    await self._read_end(link, of[0])
                    self._note_answer(of)
            else:
                await asyncio.sleep(block_s)
            return
        asked_from = {shard: self.tables.shards[shard].applied for shard in shards}
        goes_on = [shard for shard in shards if self._log_end(shard) > asked_from[shard]]
        reply = await self._read_reply(
            link,
            *("XREAD", "COUNT", read_size.entries, "BLOCK", int(block_s * 1000), "STREAMS"),
            *map(log_key, asked_from),
            *map(str, asked_from.values()),
        )
        self._note_answer(of)
        if reply is None:
            if goes_on:
                raise StorageUnavailable(
                    f"shard {goes_on[0]}: Redis at {link.address} has less of it than another node"
                )
            return
        assert isinstance(reply, list)
        names = {log_key(shard).encode(): shard for shard in shards}
        received: dict[str, list[LogEntry]] = {}
        for stream in reply:
            match stream:
                case [bytes(name), list(entries)]:
                    received[names[name]] = list(entries_of(entries))
        self._log_ends.note(asked_from, received, read_size.entries)
        read_size.came([entry for received_entries in received.values() for entry in received_entries])
        for shard, received_entries in received.items():
            await self._apply(shard, received_entries)

    async def _apply(self, shard: str, entries: list[LogEntry]) -> None:
        loop = asyncio.get_running_loop()
        state, slice_ends = self.tables.shards[shard], loop.time() + bounds.LOG_TURN_MAX_S
        self._ends[shard] = max(self._ends[shard], entries[-1].stream_id)
        size = 0
        for entry in entries:
            if not self._is_open(shard) or self.tables.shards[shard] is not state:
                break
            try:
                apply_entry(state, entry)
            except (NotNext, LogCorrupt) as error:
                log.warning("shard %s at %s can't continue: %s", shard, state.applied, error)
                self.bootstrap(shard)
                break
            except Exception:  # the tables may have half of it
                log.exception("shard %s: entry %s can't be applied", shard, entry.stream_id)
                self.bootstrap(shard)
                break
            self._entry_applied(state)
            size += len(entry.value)
            if loop.time() >= slice_ends:
                self._on_applied(shard, size)
                await asyncio.sleep(0)
                size, slice_ends = 0, loop.time() + bounds.LOG_TURN_MAX_S
        self._on_applied(shard, size)
        self._sweeper.sweep_if_needed()

    def _entry_applied(self, state: Shard) -> None:
        for callback in self.on_entry[state.name]:
            callback(state.applied)

    def _is_open(self, shard: str) -> bool:
        """The log behind the reader's connection has all that was applied here, and the promised generation."""
        ends = self._ends.get(shard, START)
        return ends >= self.tables.shards[shard].applied and ends.generation >= self._required_generation.get(shard, 0)

    async def _check_closed(self, link: RedisLink, shards: Sequence[str], connected_at: float) -> None:
        """Check again the logs in Redis that end before what this node has applied. Normally the cores start a new
        generation, and reading continues. If none starts for LOG_BEHIND_REDIS_MAX_S, a replicant bootstraps, which
        drops its newer rows. If the log stays closed for LOG_CLOSED_MAX_S, raise StorageUnavailable: the caller
        connects anew, because the new log may be on another Redis server."""
        now = asyncio.get_running_loop().time()
        for shard in shards:
            if shard in self._bootstrapping or (shard in self._ends and self._is_open(shard)):
                self._behind_since.pop(shard, None)
                continue
            ends = self._ends[shard] = await self._read_end(link, shard)
            self._note_answer([shard])
            applied = self.tables.shards[shard].applied
            if ends >= applied:
                self._behind_since.pop(shard, None)
            elif shard not in self._behind_since:
                self._behind_since[shard] = now
                log.warning("shard %s: the log ends at %s, before %s: waiting for the cores", shard, ends, applied)
            elif not self._is_core and now - self._behind_since[shard] >= bounds.LOG_BEHIND_REDIS_MAX_S:
                self.bootstrap(shard)
            if not self._is_open(shard) and now - connected_at > bounds.LOG_CLOSED_MAX_S:
                raise StorageUnavailable(
                    f"shard {shard}: the log in Redis at {link.address} isn't the one that continues"
                )

    async def _read_end(self, link: RedisLink, shard: str) -> StreamId:
        """Ask Redis where the log ends."""
        reply = await self._read_reply(link, "XREVRANGE", log_key(shard), "+", "-", "COUNT", 1)
        return next((entry.stream_id for entry in entries_of(reply)), START)

    def _note_answer(self, shards: Sequence[str]) -> None:
        """The server of these shards answered."""
        self._answered_at |= dict.fromkeys(shards, asyncio.get_running_loop().time())

    async def _read_reply(self, link: RedisLink, *command: str | int) -> Reply:
        try:
            return await link.call(*command, timeout_s=bounds.LOG_READ_BLOCK_S + bounds.LOG_REPLY_MAX_S)
        except ResponseError as error:
            await link.close()
            raise StorageUnavailable(f"Redis at {link.config.address} refuses {command[0]}: {error}") from None

    # --- bootstrap ---

    async def _bootstrap_until_done(self, shard: str) -> None:
        retry_s = bounds.LOG_RETRY_MIN_S
        waiting = Retrying(log, asyncio.get_running_loop().time)
        while True:
            try:
                await self._bootstrap_once(shard)
                break
            except StorageError as error:
                waiting.failed("bootstrap of shard %s: %s", shard, error)
            except Exception:
                log.exception("bootstrap of shard %s", shard)
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)
        del self._bootstrapping[shard]

    async def _bootstrap_once(self, shard: str) -> None:
        """Raises StorageError."""
        assert self._filler is not None
        bootstrap_stats, began_s = self.bootstrap_stats[shard], asyncio.get_running_loop().time()
        live = self.tables.shards[shard]
        fresh = await self._filler.fill(live, bootstrap_stats, lambda: self._required_generation.get(shard, 0))
        self._swap(fresh)
        bootstrap_stats.bootstraps += 1
        bootstrap_stats.seconds = asyncio.get_running_loop().time() - began_s
        bootstrap_stats.rows = sum(len(table) for table in fresh.tables.values())

    def adopt(self, fresh: Shard) -> None:
        """Use these tables, loaded from a core's snapshot. Only before `start`."""
        self._swap(fresh)

    def _swap(self, fresh: Shard) -> None:
        self.bootstraps += 1
        self._distrusted.discard(fresh.name)
        self._sweeper.retire(self.tables.swap(fresh))
        self._entry_applied(fresh)
        gc.freeze()  # tables live long: a full collection would walk them, 50 ms for a million routes
        rows = {table.spec.name: len(table) for table in fresh.tables.values()}
        log.info("shard %s is at %s, with rows: %s", fresh.name, fresh.applied, rows)
        self._on_applied(fresh.name, 0)
        self._sweeper.sweep_if_needed()
