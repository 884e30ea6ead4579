"""The durable mirror of this core's sessions: puts and deletes, group-committed to Redis behind each slot's fence.

What always holds:
- A slot's changes reach Redis in the order in which they were made, in batches, each atomic. What is put while one is
  under way goes into the next. A barrier is answered when Redis, and `min_replicas`, has all that was put before it.
- Redis takes a batch only from the slot's owner, and only behind the batch before it (functions.lua). So after an
  error, when nobody knows what was executed, the same batch is sent again; what comes twice changes nothing.
- A slot that a higher owner took is let go: its barriers get False. If Redis hasn't the last batch that it answered, it
  lost data: what is put waits until the slot is taken again.
- Redis full (`maxmemory`): `is_full` says so, and what waits is written nevertheless, for its deletes make room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from importlib.resources import files
from itertools import count
from typing import Final, TypeVar

from redis.exceptions import OutOfMemoryError, ResponseError

from flockmq import bounds, tasks
from flockmq.home.batch import Batch, SlotQueue
from flockmq.home.changes import Changes
from flockmq.home.taking import Taken, read_slots
from flockmq.rlog.errors import LogError, LogUnavailable, RedisUnreachable
from flockmq.rlog.redis import RedisConfig, RedisLink, RedisLinks

log: Final = logging.getLogger(__name__)

FUNCTIONS: Final = files("flockmq.home").joinpath("functions.lua").read_text()
TAKE: Final = b"flockmq_home_take_1"
WRITE: Final = b"flockmq_home_write_1"
WRITE_FULL: Final = b"flockmq_home_write_full_1"
"""The same for a Redis that is full: Redis refuses WRITE then."""


_T = TypeVar("_T")


class StoreFenced(Exception):
    """A higher owner took the slot; the text is its fence."""


class Store(Changes):
    """`on_fenced` and `on_lost` are told a slot's number, after what waited for it was answered or kept."""

    def __init__(self, redis: RedisConfig) -> None:
        super().__init__()
        self.on_fenced: Callable[[int], None] = _ignore
        self.on_lost: Callable[[int], None] = _ignore
        self.commits = 0
        """Batches that became durable."""
        self.committed_bytes = 0
        self.retries = 0
        """Turns that failed and were tried again."""
        self.redis_full = False
        self._unwatched: set[RedisLink] = set()
        """Connections that were made since the last look."""
        self._links = RedisLinks(redis, self._load_functions)
        self._arrived = asyncio.Event()
        self._turn = asyncio.Lock()
        """Held while what Redis has as a slot's fence may be another than we think."""
        self._numbers = count(1)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Needs no Redis yet: what is put waits for it."""
        self._tasks = [
            tasks.vital(self._run(), "home-store"),
            tasks.vital(self._watch(), "home-store-watch"),
        ]

    async def stop(self) -> None:
        """What isn't durable by now never will be: its barriers get False."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for slot in list(self._slots):
            self.release(slot)
        await self._links.close()

    def is_full(self) -> bool:
        """Refuse new messages. What acknowledges or deletes is always taken."""
        return self.redis_full or self.is_backed_up()

    def is_backed_up(self) -> bool:
        """Take nothing that adds to what waits, but acknowledgements and deletes."""
        return self.queued_bytes >= bounds.STORE_QUEUE_MAX_BYTES

    def arrived(self) -> None:
        self._arrived.set()

    # --- whose a slot is ----------------------------------------------------------------------------------------------

    async def take(self, slot: int, fence: str, *, again: bool = False) -> Taken:
        """Become the slot's owner and read what it has. `fence`: "generation-sequence incarnation"; again with the same
        one is harmless. `again`: only if it is ours by this very fence still. Raises StoreFenced if a higher owner took
        it; RedisUnreachable, LogUnavailable, the latter also if it was released meanwhile."""
        async with aclosing(self.take_all({slot: fence}, again=again)) as slots:
            async for _, taken in slots:
                if isinstance(taken, StoreFenced):
                    raise taken
                return taken
        raise LogUnavailable(f"slot {slot} was released, or taken anew, while it was read")

    async def take_all(
        self, fences: Mapping[int, str], *, again: bool = False
    ) -> AsyncGenerator[tuple[int, Taken | StoreFenced]]:
        """As `take`, many slots a round trip. A slot may be written to from when it is yielded; one that is released
        meanwhile, and was ours before, isn't. Raises RedisUnreachable or LogUnavailable: what wasn't yielded must be
        taken again."""
        refused: list[tuple[int, StoreFenced]] = []
        owned: dict[RedisLink, list[SlotQueue]] = {}
        async with self._turn:
            taken_now = [(n, fence.encode()) for n, fence in fences.items() if not again or self._is_ours(n, fence)]
            slots = [self._suspended(number, fence) for number, fence in taken_now]
            ours = {state.number: self._slots.get(state.number) for state in slots}
            for link, group in (await self._by_link(slots)).items():
                owned[link] = []
                for state, fenced in zip(group, await self._fence(link, group), strict=True):
                    if fenced is None:
                        owned[link].append(state)
                    else:
                        refused.append((state.number, fenced))
        for number, fenced in refused:
            self.release(number)
            yield number, fenced
        for link, group in owned.items():
            for at in range(0, len(group), bounds.STORE_TAKE_SLOTS):
                some = group[at : at + bounds.STORE_TAKE_SLOTS]
                for state, taken in zip(some, await read_slots(link, [state.keys for state in some]), strict=True):
                    if self._slots.get(state.number) is not ours[state.number]:
                        continue
                    self._slots[state.number] = state
                    state.writable = True
                    self._enqueue(state)
                    yield state.number, taken

    def release(self, slot: int) -> None:
        """This core doesn't own the slot any more: what waits is let go, barriers get False."""
        state = self._slots.pop(slot, None)
        if state is None:
            return
        self._queue.pop(slot, None)
        for batch in state.batches:
            self.queued_bytes -= batch.size
            _answer(batch, durable=False)

    def _is_ours(self, number: int, fence: str) -> bool:
        state = self._slots.get(number)
        return state is not None and state.fence == fence.encode()

    def _suspended(self, number: int, fence: bytes) -> SlotQueue:
        """The slot, not written while it is taken. If it is ours by this fence, what waits for it goes on waiting."""
        state = self._slots.get(number)
        if state is not None and state.fence == fence:
            self._suspend(state)
            return state
        self.release(number)
        return SlotQueue(number, fence)

    def _suspend(self, state: SlotQueue) -> None:
        state.writable = state.queued = False
        self._queue.pop(state.number, None)

    async def _fence(self, link: RedisLink, slots: list[SlotQueue]) -> list[StoreFenced | None]:
        """Set our fence for each, and say where a higher one is."""
        number = next(self._numbers)
        takes = [(b"FCALL", TAKE, 1, state.keys.fence, state.fence, number) for state in slots]
        replies = await link.write(takes, repeats_write=True)
        answers: list[StoreFenced | None] = []
        for state, reply in zip(slots, replies, strict=True):
            if isinstance(reply, ResponseError):
                if not str(reply).startswith("FENCED "):
                    raise LogUnavailable(f"slot {state.number}: Redis: {reply}")
                answers.append(StoreFenced(str(reply)[7:]))
            else:
                state.before, state.after = b"%b %d" % (state.fence, number), b""
                answers.append(None)
        return answers

    async def _by_link(self, slots: list[SlotQueue]) -> dict[RedisLink, list[SlotQueue]]:
        groups: dict[RedisLink, list[SlotQueue]] = {}
        for state in slots:
            groups.setdefault(await self._links.of(state.keys.text), []).append(state)
        return groups

    # --- committing ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        retry_s = bounds.LOG_RETRY_MIN_S
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._queue:
                try:
                    async with self._turn:
                        await self._commit(self._next_turn())
                    retry_s = bounds.LOG_RETRY_MIN_S
                except LogError as error:
                    self.retries += 1
                    log.warning("sessions wait to be durable: %s", error)
                    await asyncio.sleep(retry_s)
                    retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)
                except Exception:  # all sessions of this core would wait for ever
                    log.exception("a turn of the store failed; its slots come again")
                    await asyncio.sleep(bounds.LOG_RETRY_MAX_S)

    def _next_turn(self) -> list[SlotQueue]:
        """Slots whose first batch goes now; those that have more come behind all others."""
        turn: list[SlotQueue] = []
        size = 0
        while self._queue and size < bounds.STORE_TURN_MAX_BYTES:
            state = self._queue.pop(next(iter(self._queue)))
            state.queued = False
            if state.batches:  # else what it was queued for went with the batch before
                size += state.batches[0].size
                turn.append(state)
        return turn

    async def _commit(self, turn: list[SlotQueue]) -> None:
        """Raises LogError, for those whose batch must be sent again; they are queued."""
        try:
            groups = await self._by_link(turn)
            outcomes = await asyncio.gather(
                *(self._write(link, group) for link, group in groups.items()), return_exceptions=True
            )
        finally:
            for state in turn:
                if self._slots.get(state.number) is state:
                    self._enqueue(state)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _write(self, link: RedisLink, group: list[SlotQueue]) -> None:
        for state in group:
            state.after = state.after or b"%b %d" % (state.fence, next(self._numbers))
        function = WRITE_FULL if self.redis_full else WRITE
        replies = await link.write(
            [state.batches[0].call(function, state.keys, state.before, state.after) for state in group],
            repeats_write=True,
        )
        failure = ""
        for state, reply in zip(group, replies, strict=True):
            if self._slots.get(state.number) is not state:
                continue  # released meanwhile
            if isinstance(reply, ResponseError):
                failure = self._refused(state, reply) or failure
            else:
                self._committed(state)
        if failure:
            await link.close()  # it is prepared anew: its functions may be gone
            raise LogUnavailable(f"Redis: {failure}")

    def _committed(self, state: SlotQueue) -> None:
        batch = state.batches.popleft()
        state.before, state.after = state.after, b""
        self.queued_bytes -= batch.size
        self.committed_bytes += batch.size
        self.commits += 1
        _answer(batch, durable=True)

    def _refused(self, state: SlotQueue, error: ResponseError) -> str:
        """The error, if it is none that we know what to do about."""
        text = str(error)
        if text.startswith("FENCED"):
            self.release(state.number)
            _tell(self.on_fenced, state.number)
        elif text.startswith("LOST"):
            log.debug("slot %d: Redis lost what it had answered", state.number)
            self._suspend(state)
            _tell(self.on_lost, state.number)
        elif isinstance(error, OutOfMemoryError):
            if not self.redis_full:
                log.error("Redis is full (maxmemory): sessions that last take no messages until there is room")
            self.redis_full = True
        else:
            return text
        return ""

    # --- watching Redis -----------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Find out, without a change to write, that Redis was replaced or lost data, or has room again."""
        while True:
            await asyncio.sleep(bounds.STORE_WATCH_EVERY_S)
            try:
                async with self._turn:
                    await self._look_at_all()
            except LogError:
                pass  # whoever writes says so
            except Exception:  # nobody else would find it out
                log.exception("a look at Redis failed")

    async def _look_at_all(self) -> None:
        groups = await self._by_link(list(self._slots.values()))
        full = [await self._look(link, group) for link, group in groups.items()]
        if self.redis_full and not any(full):
            self.redis_full = False
            log.warning("Redis has room again")

    async def _look(self, link: RedisLink, group: list[SlotQueue]) -> bool:
        """Write a batch without changes: for one slot, or for all if the connection is new. Whether Redis is full."""
        sure = [state for state in group if state.writable and not state.after]
        looked_at = sure if link in self._unwatched else sure[:1]
        function = WRITE
        calls = []
        for state in looked_at:
            calls.append(Batch().call(function, state.keys, state.before, state.before))
            function = WRITE_FULL
        full = False
        for state, reply in zip(looked_at, await link.pipeline(calls), strict=True):
            if isinstance(reply, ResponseError) and self._slots.get(state.number) is state:
                full = full or isinstance(reply, OutOfMemoryError)
                self._refused(state, reply)
        self._unwatched.discard(link)
        return full

    async def _load_functions(self, link: RedisLink) -> None:
        try:
            await link.call("FUNCTION", "LOAD", "REPLACE", FUNCTIONS)
        except OutOfMemoryError:
            pass  # a Redis that became full has them from before
        except ResponseError as error:
            raise RedisUnreachable(f"Redis at {link.config.address}: {error}") from None
        self._unwatched.add(link)


def _answer(batch: Batch, *, durable: bool) -> None:
    for done in batch.barriers:
        _tell(done, durable)


def _tell(listener: Callable[[_T], None], what: _T) -> None:
    """What a listener fails at is its own affair: the next one is told all the same."""
    try:
        listener(what)
    except Exception:
        log.exception("a listener of the store failed")


def _ignore(_: int) -> None:
    """Nobody asked to be told."""
