"""Group commit, on a core: what arrives while the last append is under way goes into the next one.

One loop for all shards and one connection: each turn takes what waits, makes one append a shard, sends them in one
round trip. The connection is opened in one life of Redis; before its first append each shard is settled in that life
(generation.py). A lost connection fails the appends under way with LogUnavailable: whether they were executed is
unknown, and their writers send the same numbers again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from redis.exceptions import ResponseError

from flockmq import bounds
from flockmq.rlog.entry import StreamId, encode_purge, encode_registration
from flockmq.rlog.errors import LogError, LogGap, LogRefused, LogUnavailable, RedisUnreachable
from flockmq.rlog.generation import GoOn, Life, Seal, plan
from flockmq.rlog.redis import Argument, RedisConfig, RedisLink, Reply
from flockmq.rlog.shards import SHARDS
from flockmq.rlog.tables import Tables

log = logging.getLogger(__name__)

FUNCTIONS: Final = files("flockmq.rlog").joinpath("functions.lua").read_text()


def keys_of(shard: str) -> tuple[str, str, str, str]:
    """The keys of a shard in Redis, in the order in which functions.lua takes them."""
    tag = f"flockmq:{{{shard}}}"
    return f"{tag}:log", f"{tag}:life", f"{tag}:sequences", f"{tag}:purged"


@dataclass(slots=True, eq=False)
class _Append:
    incarnation: str
    first: int
    transactions: Sequence[bytes]
    size: int
    done: asyncio.Future[StreamId]


class Committer:
    """The only writer of a log. `tables` are this core's own: what they applied must not be missing in Redis."""

    def __init__(self, config: RedisConfig, tables: Tables) -> None:
        self.queued_bytes = 0
        self._link = RedisLink(config, by_hand=True)
        self._tables = tables
        self._lives: dict[str, Life] = {}
        self._run_id = ""
        self._queues: dict[str, deque[_Append]] = {shard: deque() for shard in SHARDS}
        self._arrived = asyncio.Event()
        self._settling = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Settle all shards. Raises RedisUnreachable."""
        await self.settle()
        self._tasks = [
            asyncio.create_task(self._run(), name="rlog-committer"),
            asyncio.create_task(self._watch(), name="rlog-committer-watch"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for queue in self._queues.values():
            while queue:
                self._fail(queue.popleft(), LogUnavailable("this core is stopping"))
        await self._link.close()

    def append(
        self, shard: str, incarnation: str, first: int, transactions: Sequence[bytes]
    ) -> asyncio.Future[StreamId]:
        """Queue one append; the future gets the Stream ID, or LogUnavailable, LogRefused, LogGap."""
        done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
        size = sum(map(len, transactions))
        if self.queued_bytes + size > bounds.LOG_COMMIT_QUEUE_MAX_BYTES:
            done.set_exception(LogUnavailable(f"{self.queued_bytes} bytes of appends wait in this core"))
            return done
        self.queued_bytes += size
        self._queues[shard].append(_Append(incarnation, first, transactions, size, done))
        self._arrived.set()
        return done

    async def register(self, shard: str, incarnation: str) -> StreamId:
        """Make the incarnation known to the shard; again is harmless. Raises LogRefused if it was purged."""
        return await self._function("register", shard, incarnation, encode_registration(incarnation))

    async def purge(self, shard: str, incarnation: str) -> StreamId | None:
        """Refuse the incarnation from here on and drop its rows everywhere. None: it was not registered."""
        forget = bounds.LOG_PURGED_MAX_INCARNATIONS
        try:
            return await self._function("purge", shard, incarnation, encode_purge(incarnation), forget)
        except LogRefused:
            return None

    async def settle(self) -> None:
        """Make sure of a connection, and that each shard's log goes on in the life of Redis it was opened in."""
        if self._link.connected and len(self._lives) == len(SHARDS):
            return
        async with self._settling:
            if not self._link.connected:
                await self._connect()
            for shard in SHARDS:
                if shard not in self._lives:
                    await self._settle_shard(shard)

    async def _connect(self) -> None:
        self._lives.clear()
        await self._link.connect()
        try:
            await self._link.call("FUNCTION", "LOAD", "REPLACE", FUNCTIONS)
            info = await self._link.call("INFO", "server")
        except ResponseError as error:
            await self._link.close()
            raise RedisUnreachable(f"Redis at {self._link.config.address}: {error}") from None
        assert isinstance(info, bytes)
        self._run_id = next(line for line in info.decode().splitlines() if line.startswith("run_id:"))[7:]

    async def _settle_shard(self, shard: str) -> None:
        keys = keys_of(shard)
        last = ("XREVRANGE", keys[0], "+", "-", "COUNT", 1)
        stored, newest = await self._link.pipeline([("GET", keys[1]), last])
        text = stored.decode() if isinstance(stored, bytes) else ""
        state = self._tables.shards[shard]
        step = plan(Life.parse(text), self._run_id, _newest_id(newest), state.applied)
        if isinstance(step, GoOn):
            self._lives[shard] = step.life
            return
        verb = "seal" if isinstance(step, Seal) else "seed"
        arguments: list[Argument] = [text, str(step.life), str(step.known)]
        if verb == "seed":
            for incarnation, number in state.sequences.items():
                arguments += incarnation, number
        try:
            await self._link.call("FCALL", f"flockmq_{verb}_1", len(keys), *keys, *arguments)
        except ResponseError as error:
            raise LogUnavailable(f"shard {shard}: another core changes its generation: {error}") from None
        log.warning("shard %s: generation %d %sed from %s", shard, step.life.generation, verb, step.known)
        self._lives[shard] = step.life

    async def _function(self, verb: str, shard: str, incarnation: str, *arguments: Argument) -> StreamId:
        await self.settle()
        keys = keys_of(shard)
        command = ("FCALL", f"flockmq_{verb}_1", len(keys), *keys, str(self._lives[shard]), incarnation, *arguments)
        reply = (await self._link.pipeline([command]))[0]
        if isinstance(reply, ResponseError):
            raise self._refused(shard, reply)
        return _answer(incarnation, reply)

    async def _watch(self) -> None:
        """Notice a restarted Redis, and settle in its new life, before the next write does."""
        while True:
            await asyncio.sleep(bounds.LOG_WATCH_EVERY_S)
            try:
                if self._link.connected:
                    await self._link.call("PING")
                await self.settle()
            except LogError as error:
                log.warning("committer: %s", error)

    async def _run(self) -> None:
        retry_s = bounds.LOG_RETRY_MIN_S
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            try:
                while any(self._queues.values()):
                    await self.settle()
                    await self._commit(self._take())
                    retry_s = bounds.LOG_RETRY_MIN_S
            except LogError as error:
                self._fail_all(error)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)

    def _take(self) -> dict[str, list[_Append]]:
        """What waits, up to one append's bounds a shard, in the order it came."""
        batches: dict[str, list[_Append]] = {}
        for shard, queue in self._queues.items():
            size = count = 0
            while queue and (not count or _fits(size + queue[0].size, count + len(queue[0].transactions))):
                append = queue.popleft()
                size += append.size
                count += len(append.transactions)
                batches.setdefault(shard, []).append(append)
        return batches

    async def _commit(self, batches: dict[str, list[_Append]]) -> None:
        commands = [self._command(shard, appends) for shard, appends in batches.items()]
        try:
            replies = await self._link.pipeline(commands)
        except BaseException as error:
            failure = error if isinstance(error, LogError) else LogUnavailable("this core is stopping")
            for append in (append for appends in batches.values() for append in appends):
                self._fail(append, failure)
            raise
        for (shard, appends), reply in zip(batches.items(), replies, strict=True):
            if isinstance(reply, list) and len(reply) == len(appends):
                for append, answer in zip(appends, reply, strict=True):
                    self._resolve(append, answer)
            else:
                refused = self._refused(shard, reply)
                for append in appends:
                    self._fail(append, refused)

    def _command(self, shard: str, appends: Sequence[_Append]) -> list[Argument]:
        keys = keys_of(shard)
        command: list[Argument] = ["FCALL", "flockmq_append_1", len(keys), *keys, str(self._lives[shard])]
        for append in appends:
            command += append.incarnation, append.first, len(append.transactions), *append.transactions
        return command

    def _refused(self, shard: str, reply: Reply | ResponseError) -> LogUnavailable:
        """Redis refused the command as a whole. Another life: settle before the next one."""
        text = str(reply) if isinstance(reply, ResponseError) else repr(reply)
        if text.startswith("LIFE"):
            self._lives.pop(shard, None)
        return LogUnavailable(f"shard {shard}: Redis at {self._link.config.address}: {text}")

    def _resolve(self, append: _Append, answer: Reply) -> None:
        self.queued_bytes -= append.size
        if append.done.done():
            return
        try:
            append.done.set_result(_answer(append.incarnation, answer))
        except LogError as error:
            append.done.set_exception(error)

    def _fail(self, append: _Append, error: LogError) -> None:
        self.queued_bytes -= append.size
        if not append.done.done():
            append.done.set_exception(error)

    def _fail_all(self, error: LogError) -> None:
        for queue in self._queues.values():
            while queue:
                self._fail(queue.popleft(), error)


def _fits(size: int, count: int) -> bool:
    return size <= bounds.LOG_APPEND_MAX_BYTES and count <= bounds.LOG_APPEND_MAX_TRANSACTIONS


def _newest_id(reply: Reply | ResponseError) -> StreamId:
    match reply:
        case [[bytes(stream_id), _]]:
            return StreamId.parse(stream_id)
        case []:
            return StreamId(0, 0)
    raise LogUnavailable(f"the end of the log can't be read: {reply!r}")


def _answer(incarnation: str, reply: Reply) -> StreamId:
    """What a function answered one incarnation. Raises LogRefused or LogGap."""
    assert isinstance(reply, bytes)
    if reply in (b"UNREGISTERED", b"PURGED"):
        raise LogRefused(f"{incarnation} is {reply.decode().lower()} in the log")
    if reply.startswith(b"GAP "):
        raise LogGap(reply[4:].decode())
    return StreamId.parse(reply)
