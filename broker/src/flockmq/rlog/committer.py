"""Group commit on a core: appends that arrive while one append is under way go into the next one.

One loop serves all shards. In a Redis Cluster, where each shard may be on another server, each shard has its own loop.
A round takes the waiting appends, makes one append per shard, and sends these in one round trip.

A shard is *settled* on a connection when its log has a generation for the run of Redis behind that connection
(generation_change.py). The committer settles a shard before the first append on a connection.

When a connection is lost, the appends under way fail with StorageUnavailable. Nobody knows whether Redis executed them,
so their writers send the same numbers again. An append that was never sent to Redis, or that Redis refused as a whole,
fails with LogUntried.

Each append is answered, also after an unexpected error. The loop goes on after one, because a round leaves nothing that
the next one needs: Redis itself has the numbers and the generation.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from random import Random
from typing import Final

from redis.exceptions import OutOfMemoryError, ResponseError

from flockmq import bounds, tasks
from flockmq.logs import Retrying
from flockmq.redis.errors import RedisUnreachable, StorageError, StorageUnavailable
from flockmq.redis.link import Argument, RedisConfig, RedisLink, RedisLinks, Reply
from flockmq.rlog.entry import StreamId, encode_purge, encode_registration
from flockmq.rlog.errors import LogFenced, LogGap, LogRefused, LogUntried
from flockmq.rlog.generation import Life
from flockmq.rlog.generation_change import GenerationChange
from flockmq.rlog.schema import CLUSTER, SHARDS, keys_of
from flockmq.rlog.voter import Voter

log = logging.getLogger(__name__)

FUNCTIONS: Final = files("flockmq.rlog").joinpath("functions.lua").read_text()
APPEND: Final = "flockmq_append_1"
APPEND_FULL: Final = "flockmq_append_full_1"
"""The same function, but it also works when Redis is out of memory: nodes must still join and leave, and slots move."""


@dataclass(slots=True, eq=False)
class _Append:
    incarnation: str
    first: int
    transactions: Sequence[bytes]
    size: int
    done: asyncio.Future[StreamId]


class Committer:
    """A core's only way to write to the logs."""

    def __init__(self, config: RedisConfig, election: GenerationChange, voter: Voter, random: Random) -> None:
        self.queued_bytes = 0
        self._links = RedisLinks(config, self._prepare)
        self._election = election
        self._voter = voter
        self._random = random
        self._run_ids: dict[RedisLink, str] = {}
        self._settled: dict[str, tuple[RedisLink, Life]] = {}
        self._queues: dict[str, deque[_Append]] = {shard: deque() for shard in SHARDS}
        self._groups = config.by_server(SHARDS)
        self._arrived: dict[str, asyncio.Event] = {}
        for group in self._groups:
            self._arrived |= dict.fromkeys(group, asyncio.Event())
        self._settling = asyncio.Lock()
        self._waiting = Retrying(log, asyncio.get_running_loop().time)
        """Limits log lines while Redis or the other cores are unavailable."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Return when all shards are settled. Wait for a majority of the cores as long as it takes. Raises
        RedisUnreachable."""
        while True:
            try:
                await self._settle(SHARDS)
                break
            except RedisUnreachable:
                raise
            except StorageUnavailable as error:
                self._waiting.failed("committer: %s", error)
                await asyncio.sleep(bounds.LOG_RETRY_MAX_S / 4)
        self._tasks = [
            tasks.vital(work(group), f"rlog-committer-{group[0]}")
            for group in self._groups
            for work in (self._run, self._watch)
        ]

    def leave(self) -> None:
        """This node is about to stop: a cancelled call closes the connection that all callers share, so don't log
        that."""
        self._waiting.leave()

    async def stop(self) -> None:
        await tasks.end(*self._tasks)
        for queue in self._queues.values():
            while queue:
                self._fail(queue.popleft(), LogUntried("this core is stopping"))
        await self._links.close()

    def append(
        self, shard: str, incarnation: str, first: int, transactions: Sequence[bytes]
    ) -> asyncio.Future[StreamId]:
        """Queue one append. The future gets the Stream ID, or LogUntried, StorageUnavailable, LogRefused or LogGap."""
        done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
        size = sum(map(len, transactions))
        if self.queued_bytes + size > bounds.LOG_COMMIT_QUEUE_MAX_BYTES:
            done.set_exception(LogUntried(f"{self.queued_bytes} bytes of appends wait in this core"))
            return done
        self.queued_bytes += size
        self._queues[shard].append(_Append(incarnation, first, transactions, size, done))
        self._arrived[shard].set()
        return done

    def waiting(self, shard: str) -> int:
        """The number of queued appends."""
        return len(self._queues[shard])

    async def register(self, shard: str, incarnation: str) -> StreamId:
        """Register the incarnation in the shard; repeating it is harmless. Raises LogRefused if it was purged."""
        reply = await self._function("register", shard, incarnation, encode_registration(incarnation))
        return _answer(incarnation, reply)

    async def purge(self, shard: str, incarnation: str, fence: StreamId) -> None:
        """Refuse later writes of the incarnation and delete its rows on all nodes. Raises LogFenced,
        StorageUnavailable."""
        transaction, remembered = encode_purge(incarnation), bounds.LOG_PURGED_MAX_INCARNATIONS
        await self._function("purge", shard, str(fence), incarnation, transaction, remembered)

    async def checkpoint(self, shard: str, fence: StreamId) -> None:
        """Make every node record its digests at one log position. Raises LogFenced, StorageUnavailable."""
        await self._function("checkpoint", shard, str(fence))

    async def trim(self, shard: str, keep_from: StreamId, fence: StreamId) -> None:
        """Delete log entries before `keep_from`. Raises LogFenced, StorageUnavailable."""
        await self._function("trim", shard, str(fence), str(keep_from))

    async def generation(self, shard: str) -> int:
        """Ask Redis in which generation the shard's log goes on, after beginning the next one if that is needed. Raises
        StorageUnavailable."""
        try:
            await self._check_life(shard)
        except ResponseError as error:
            raise StorageUnavailable(f"shard {shard}: Redis: {error}") from None
        await self._settle([shard])
        return self._settled[shard][1].generation

    async def _settle(self, shards: Iterable[str]) -> None:
        """Ensure that these shards have a generation for the run of Redis behind their connections. Raises
        StorageUnavailable."""
        if all(self._is_settled(shard) for shard in shards):
            return
        async with self._settling:
            for shard in shards:
                if not self._is_settled(shard):
                    link = await self._links.of(keys_of(shard)[0])
                    self._settled[shard] = link, await self._election.settle(link, shard, self._run_ids[link])
            self._waiting.worked()

    def _is_settled(self, shard: str) -> bool:
        return shard in self._settled and self._settled[shard][0].connected

    async def _prepare(self, link: RedisLink) -> None:
        """Prepare a new connection: load the Lua functions and read the run id. No shard is settled on it yet. Raises
        RedisUnreachable."""
        for shard in [shard for shard, (settled_on, _) in self._settled.items() if settled_on is link]:
            del self._settled[shard]
        try:
            with suppress(OutOfMemoryError):  # if Redis became full, the functions are there from before
                await link.call("FUNCTION", "LOAD", "REPLACE", FUNCTIONS)
            info = await link.call("INFO", "server")
        except ResponseError as error:
            raise RedisUnreachable(f"Redis at {link.config.address}: {error}") from None
        assert isinstance(info, bytes)
        self._run_ids[link] = next(line for line in info.decode().splitlines() if line.startswith("run_id:"))[7:]

    async def _function(self, verb: str, shard: str, *arguments: Argument) -> Reply:
        await self._settle([shard])
        link, life = self._settled[shard]
        keys = keys_of(shard)
        reply = (await link.write([("FCALL", f"flockmq_{verb}_1", len(keys), *keys, str(life), *arguments)]))[0]
        if isinstance(reply, ResponseError):
            raise self._refused(shard, reply)
        return reply

    async def _watch(self, shards: Sequence[str]) -> None:
        """Find out that Redis restarted, was replaced or emptied, and settle before the next write comes. Also begin a
        generation if another core got the promise for one and then went away."""
        while True:
            await asyncio.sleep(bounds.LOG_WATCH_EVERY_S * self._random.uniform(0.5, 1.0))
            try:
                for shard in shards:
                    await self._check_life(shard)
                await self._settle(shards)
            except (StorageError, ResponseError) as error:
                self._waiting.failed("committer: %s", error)
            except Exception:  # otherwise nobody would find out that Redis restarted
                log.exception("a check of the log in Redis failed")

    async def _check_life(self, shard: str) -> None:
        if not self._is_settled(shard):
            return
        link, life = self._settled[shard]
        stored = await link.call("GET", keys_of(shard)[1])
        is_promised = life.generation < self._voter.promised(shard)
        waited = is_promised and self._voter.promised_for_s(shard) >= bounds.BALLOT_PATIENCE_S
        if (waited or stored != str(life).encode()) and self._settled.get(shard) == (link, life):
            del self._settled[shard]

    async def _run(self, shards: Sequence[str]) -> None:
        retry_s = bounds.LOG_RETRY_MIN_S
        arrived = self._arrived[shards[0]]
        while True:
            await arrived.wait()
            arrived.clear()
            try:
                while waiting := [shard for shard in shards if self._queues[shard]]:
                    await self._settle(waiting)
                    await self._commit(self._take(waiting))
                    retry_s = bounds.LOG_RETRY_MIN_S
            except StorageError as error:
                self._fail_all(shards, error)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)
            except Exception as error:  # otherwise this core would commit nothing more, for any node
                log.exception("a round of appends failed; their writers send them again")
                self._fail_all(shards, StorageUnavailable(f"this core failed: {error!r}"))
                await asyncio.sleep(bounds.LOG_RETRY_MAX_S)

    def _take(self, shards: Sequence[str]) -> dict[str, list[_Append]]:
        """Take the appends of settled shards in their order, at most one append's bounds per shard."""
        batches: dict[str, list[_Append]] = {}
        for shard in shards:
            if not self._is_settled(shard):
                continue
            queue = self._queues[shard]
            size = count = 0
            while queue and (not count or _fits(size + queue[0].size, count + len(queue[0].transactions))):
                append = queue.popleft()
                size += append.size
                count += len(append.transactions)
                batches.setdefault(shard, []).append(append)
        return batches

    async def _commit(self, batches: dict[str, list[_Append]]) -> None:
        """Commit in one round trip. Raises StorageUnavailable."""
        if not batches:
            return
        unanswered = deque(append for appends in batches.values() for append in appends)
        try:
            link = self._settled[next(iter(batches))][0]
            replies = await link.write([self._command(shard, appends) for shard, appends in batches.items()])
            for (shard, appends), reply in zip(batches.items(), replies, strict=True):
                for answer in self._answers(shard, len(appends), reply):
                    self._resolve(unanswered[0], answer)  # if this fails it is still unanswered
                    unanswered.popleft()
        except BaseException as error:
            for append in unanswered:
                self._fail(append, _failure(error))
            raise

    def _command(self, shard: str, appends: Sequence[_Append]) -> list[Argument]:
        keys = keys_of(shard)
        function = APPEND_FULL if shard == CLUSTER else APPEND
        command: list[Argument] = ["FCALL", function, len(keys), *keys, str(self._settled[shard][1])]
        for append in appends:
            command += append.incarnation, append.first, len(append.transactions), *append.transactions
        return command

    def _answers(self, shard: str, count: int, reply: Reply | ResponseError) -> Sequence[Reply | LogUntried]:
        """The answers to this many appends to a shard."""
        if isinstance(reply, list) and len(reply) == count:
            return reply
        return [LogUntried(str(self._refused(shard, reply)))] * count

    def _refused(self, shard: str, reply: Reply | ResponseError) -> StorageUnavailable:
        """Redis refused the whole command. If its log is in another life, the shard is settled again before the next
        command."""
        text = str(reply) if isinstance(reply, ResponseError) else repr(reply)
        if text.startswith("LIFE"):
            self._settled.pop(shard, None)
        if text.startswith("FENCE"):
            return LogFenced(f"shard {shard}: another core leads by now: its fence is {text[6:]}")
        return StorageUnavailable(f"shard {shard}: Redis: {text}")

    def _resolve(self, append: _Append, answer: Reply | LogUntried) -> None:
        try:
            stream_id = _answer(append.incarnation, answer)
        except StorageError as error:
            self._fail(append, error)
            return
        self.queued_bytes -= append.size
        if not append.done.done():
            append.done.set_result(stream_id)

    def _fail(self, append: _Append, error: StorageError) -> None:
        self.queued_bytes -= append.size
        if not append.done.done():
            append.done.set_exception(error)

    def _fail_all(self, shards: Sequence[str], error: StorageError) -> None:
        """Fail all queued appends of these shards."""
        untried = LogUntried(str(error))
        for shard in shards:
            while self._queues[shard]:
                self._fail(self._queues[shard].popleft(), untried)


def _fits(size: int, count: int) -> bool:
    return size <= bounds.LOG_APPEND_MAX_BYTES and count <= bounds.LOG_APPEND_MAX_TRANSACTIONS


def _failure(error: BaseException) -> StorageError:
    """What a round that ended so tells the writers of its appends."""
    match error:
        case StorageError():
            return error
        case asyncio.CancelledError():
            return StorageUnavailable("this core is stopping")
    return StorageUnavailable(f"this core failed: {error!r}")


def _answer(incarnation: str, reply: Reply | LogUntried) -> StreamId:
    """Translate what the Lua function answered for one incarnation. Raises LogUntried, LogRefused or LogGap."""
    if isinstance(reply, LogUntried):
        raise reply
    assert isinstance(reply, bytes)
    if reply in (b"UNREGISTERED", b"PURGED"):
        raise LogRefused(f"{incarnation} is {reply.decode().lower()} in the log")
    if reply.startswith(b"GAP "):
        raise LogGap(reply[4:].decode())
    return StreamId.parse(reply)
