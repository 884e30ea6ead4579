"""The durable copy of this core's sessions in Redis: writes in group commits, protected by each slot's fence.

Invariants:
- The changes of a slot reach Redis in order, in atomic batches. What is put while a batch is being sent goes into the
  next one. A barrier is answered when Redis, and `min_replicas` replicas, have all that was put before it.
- Redis accepts a batch only from the slot's owner, and only after the batch before it (functions.lua). So after an
  error, when nobody knows what was executed, the same batch is sent again; a second execution has no effect.
- When a higher owner has taken a slot, it is released here: its barriers get False. If Redis doesn't have the last
  batch that it confirmed, it lost data: writes wait until the slot is taken again.
- A slot with a key of a wrong type is reported, and doesn't delay other slots; nor does one whose hash slot is being
  moved to another master.
- If Redis is full (`maxmemory`), or nearly, `is_full` is True; waiting writes are still sent, because their deletes
  free memory. `is_short` is True well before that, or while this core is short of memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from importlib.resources import files
from itertools import count
from typing import Final, TypeVar, cast

from redis.exceptions import OutOfMemoryError, ResponseError

from flockmq import bounds, tasks
from flockmq.default_callbacks import ignore
from flockmq.durable.pending_writes import Done, PendingWrites, SlotKeys, SlotQueue, WriteBatch
from flockmq.durable.slot_reader import SlotContents, SlotReading, UnreadableSlot, is_wrong_type
from flockmq.durable.store_servers import MemoryRoom, StoreServer, StoreServers, memory_in
from flockmq.logs import Retrying
from flockmq.redis.errors import RedisUnreachable, StorageError, StorageUnavailable
from flockmq.redis.link import RedisConfig, RedisLink, is_moving

log: Final = logging.getLogger(__name__)

FUNCTIONS: Final = files("flockmq.durable").joinpath("functions.lua").read_text()
TAKE: Final = b"flockmq_home_take_2"
WRITE: Final = b"flockmq_home_write_2"
WRITE_FULL: Final = b"flockmq_home_write_full_2"
"""The same function for a full Redis, which refuses WRITE."""


_T = TypeVar("_T")


class StoreFenced(Exception):
    """A higher owner has taken the slot; the text is its fence."""


class SessionStore(PendingWrites):
    """`on_fenced` and `on_lost` are called with a slot's number, after its barriers were answered or kept."""

    def __init__(self, redis: RedisConfig) -> None:
        super().__init__()
        self.on_fenced: Callable[[int], None] = ignore
        self.on_lost: Callable[[int], None] = ignore
        self.commits = 0
        """Number of batches that became durable."""
        self.committed_bytes = 0
        self.core_is_short = False
        """This core is short of memory, or a node has none for more filters."""
        self.retries = 0
        """Number of failed attempts that were repeated."""
        self._servers = StoreServers(redis, self._load_functions, self._found)
        self._numbers = count(1)
        self._is_running = False

    async def start(self) -> None:
        """Doesn't wait for Redis: writes wait until it is reachable."""
        self._is_running = True
        for server in self._servers.all():
            self._run_at(server)

    def _found(self, server: StoreServer) -> None:
        if self._is_running:
            self._run_at(server)

    def _run_at(self, server: StoreServer) -> None:
        server.tasks = [
            tasks.vital(self._run(server), "home-store"),
            tasks.vital(self._watch(server), "home-store-watch"),
        ]

    async def stop(self) -> None:
        """What isn't durable now never will be: its barriers get False."""
        self._is_running = False
        await tasks.end(*(task for server in self._servers.all() for task in server.tasks))
        for slot in list(self._slots):
            self.release(slot)
        await self._servers.close()

    @property
    def redis_full(self) -> bool:
        return any(server.is_full for server in self._servers.all())

    def is_full(self, slot: int) -> bool:
        """True if new messages for the slot must be refused. Acknowledgements and deletes are always accepted."""
        state = self._slots.get(slot)
        if state is None:
            return False
        server = cast(StoreServer, state.server)
        return server.takes_nothing_new() or server.waiting_bytes >= self._servers.part_bytes()

    def is_short(self, slot: int) -> bool:
        """True if no new sessions or subscriptions may begin in the slot."""
        state = self._slots.get(slot)
        if state is None:
            return False
        return self.core_is_short or cast(StoreServer, state.server).room.is_short or self.is_full(slot)

    def is_any_full(self) -> bool:
        """False if `is_full` is False for every slot."""
        is_one_full = any(server.takes_nothing_new() for server in self._servers.all())
        return is_one_full or self.queued_bytes >= self._servers.part_bytes()

    def rooms(self) -> dict[str, MemoryRoom]:
        """By address: the memory of servers that have slots of this core."""
        servers = {state.server for state in self._slots.values()}
        return {server.link.address: server.room for server in self._servers.all() if server in servers}

    def is_backed_up(self, slot: int) -> bool:
        """True if the slot must accept only acknowledgements and deletes, because too much waits for its server."""
        state = self._slots.get(slot)
        return state is not None and state.server.waiting_bytes >= self._servers.part_bytes()

    # --- whose a slot is ----------------------------------------------------------------------------------------------

    async def take(self, slot: int, fence: str, *, again: bool = False) -> SlotContents:
        """Become the slot's owner and read its contents. `fence`: "generation-sequence incarnation"; a repeat with the
        same fence is harmless. `again`: only if the slot is still ours with this fence. Raises StoreFenced if a
        higher owner took it; UnreadableSlot; RedisUnreachable; StorageUnavailable, also if the slot was released
        meanwhile.
        """
        (server,) = await self._servers.group([slot])
        async with aclosing(self._take_at(server, {slot: fence}, again)) as slots:
            async for _, taken in slots:
                if isinstance(taken, SlotContents):
                    return taken
                raise taken
        raise StorageUnavailable(f"slot {slot} was released, or taken anew, while it was read")

    async def apart(self, slots: Iterable[int]) -> list[list[int]]:
        """Group the slots by server. Raises RedisUnreachable."""
        return list((await self._servers.group(slots)).values())

    async def take_all(
        self, fences: Mapping[int, str], *, again: bool = False
    ) -> AsyncGenerator[tuple[int, SlotContents | StoreFenced | UnreadableSlot]]:
        """As `take`, with many slots in a round trip, small ones first. A slot may be written after it was yielded. A
        slot that is released meanwhile isn't yielded. Raises RedisUnreachable or StorageUnavailable: slots that
        weren't yielded must be taken again. One whose hash slot is being moved is among these; all others are yielded
        before that is raised.
        """
        for server, group in (await self._servers.group(fences)).items():
            slots = self._take_at(server, {number: fences[number] for number in group}, again)
            async with server.reading, aclosing(slots):
                async for taken in slots:
                    yield taken

    async def _take_at(
        self, server: StoreServer, fences: Mapping[int, str], again: bool
    ) -> AsyncGenerator[tuple[int, SlotContents | StoreFenced | UnreadableSlot]]:
        await self._move_here(server, fences)
        async with server.turn:
            taken_now = [(n, fence.encode()) for n, fence in fences.items() if not again or self._is_ours(n, fence)]
            slots = [self._suspended(number, fence, server) for number, fence in taken_now]
            ours = {state.number: self._slots.get(state.number) for state in slots}
            answers = await self._fence(server, slots) if slots else []
            connection = server.link.connection
        owned: dict[SlotKeys, SlotQueue] = {}
        moving: list[SlotKeys] = []
        for state, refused in zip(slots, answers, strict=True):
            if refused is None:
                owned[state.keys] = state
            elif isinstance(refused, ResponseError):
                moving.append(state.keys)
            else:
                if isinstance(refused, StoreFenced):
                    self.release(state.number)
                yield state.number, refused
        set_here = {keys: state.before for keys, state in owned.items()}
        reading = SlotReading(server.link, connection, set_here, server.page_bytes)
        try:
            async with aclosing(reading.slots()) as read:
                async for keys, taken in read:
                    state = owned[keys]
                    if self._slots.get(state.number) is not ours[state.number]:
                        continue
                    if isinstance(taken, SlotContents):
                        self._slots[state.number] = state
                        state.writable = True
                        self._enqueue(state)
                    yield state.number, taken
        except RedisUnreachable:
            server.was_not_read()
            raise
        server.was_read()
        if moving := [*moving, *reading.moving]:
            names = ", ".join(of_slot.text for of_slot in moving)
            raise StorageUnavailable(f"Redis at {server.link.address} is moving {names} to another master")

    def release(self, slot: int) -> None:
        """This core no longer owns the slot: drop its writes; its barriers get False."""
        state = self._slots.pop(slot, None)
        if state is None:
            return
        self._suspend(state)
        for batch in state.batches:
            self._let_go(state, batch)
            _answer(batch.barriers, durable=False)
        _answer(state.held_barriers or [], durable=False)

    def _is_ours(self, number: int, fence: str) -> bool:
        state = self._slots.get(number)
        return state is not None and state.fence == fence.encode()

    def _suspended(self, number: int, fence: bytes, server: StoreServer) -> SlotQueue:
        """The slot, with writing stopped while it is taken. If it is ours with this fence, its waiting
        writes are kept.
        """
        state = self._slots.get(number)
        if state is not None and state.fence == fence:
            self._suspend(state)
            return state
        self.release(number)
        return SlotQueue(number, fence, server)

    async def _move_here(self, server: StoreServer, slots: Iterable[int]) -> None:
        """Move slots that were at another server here, after that server has no batch of them in flight."""
        for number in slots:
            while (state := self._slots.get(number)) is not None and state.server is not server:
                former = cast(StoreServer, state.server)
                async with former.turn:
                    if self._slots.get(number) is state and state.server is former:  # Neither released nor moved.
                        self._move(state, server)

    async def _fence(
        self, server: StoreServer, slots: list[SlotQueue]
    ) -> list[StoreFenced | UnreadableSlot | ResponseError | None]:
        """Set our fence for each slot. Returns for each what prevented it, or None; a ResponseError: its hash slot is
        being moved."""
        number = next(self._numbers)
        takes = [(b"FCALL", TAKE, 1, state.keys.fence, state.fence, number) for state in slots]
        await self._servers.connect(server, slots[0])
        replies = await server.link.write(takes, repeats_write=True, apart=True)
        answers: list[StoreFenced | UnreadableSlot | ResponseError | None] = []
        for state, reply in zip(slots, replies, strict=True):
            if not isinstance(reply, ResponseError):
                state.before, state.after = b"%b %d" % (state.fence, number), b""
                answers.append(None)
            elif str(reply).startswith("FENCED "):
                answers.append(StoreFenced(str(reply)[7:]))
            elif is_wrong_type(reply):
                answers.append(UnreadableSlot(f"{state.keys.text}: {reply}"))
            elif is_moving(reply):
                answers.append(reply)
            else:
                raise StorageUnavailable(f"slot {state.number}: Redis: {reply}")
        return answers

    async def _still_at(self, server: StoreServer, slots: list[SlotQueue]) -> list[SlotQueue]:
        """Connect to the server and return the slots that it still has; move others to their server. Raises
        RedisUnreachable.
        """
        if server.link.connected or not slots:
            return slots
        await self._servers.look_up()
        for state in (*slots, *server.queue.values()):
            if (there := self._servers.of(state.keys)) is not server and self._slots.get(state.number) is state:
                self._move(state, there)
        here = [state for state in slots if state.server is server]
        if here:
            await self._servers.connect(server, here[0])
        return here

    # --- committing ---------------------------------------------------------------------------------------------------

    async def _run(self, server: StoreServer) -> None:
        retry_s = bounds.LOG_RETRY_MIN_S
        trouble = Retrying(log, asyncio.get_running_loop().time)
        while True:
            await server.has_work.wait()
            server.has_work.clear()
            while server.queue:
                try:
                    async with server.turn:
                        await self._commit(server, server.take_turn())
                    trouble.worked()
                    retry_s = bounds.LOG_RETRY_MIN_S
                except StorageError as error:
                    self.retries += 1
                    trouble.failed("writes of sessions wait for Redis: %s", error)
                    await asyncio.sleep(retry_s)
                    retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)
                except Exception:  # Otherwise no session at this server would ever be committed.
                    log.exception("a write of the session store failed; it is repeated")
                    await asyncio.sleep(bounds.LOG_RETRY_MAX_S)

    async def _commit(self, server: StoreServer, turn: list[SlotQueue]) -> None:
        """Raises StorageError if batches must be sent again; their slots are queued again."""
        try:
            if here := await self._still_at(server, turn):
                await self._write(server, here)
        finally:
            for state in turn:
                if self._slots.get(state.number) is state:
                    self._enqueue(state)

    async def _write(self, server: StoreServer, group: list[SlotQueue]) -> None:
        for state in group:
            state.after = state.after or b"%b %d" % (state.fence, next(self._numbers))
        function = WRITE_FULL if server.is_full else WRITE
        replies = await server.link.write(
            [state.batches[0].call(function, state.keys, state.before, state.after) for state in group],
            repeats_write=True,
            apart=True,
        )
        failure = ""
        for state, reply in zip(group, replies, strict=True):
            if self._slots.get(state.number) is not state:
                continue  # Released meanwhile.
            if isinstance(reply, ResponseError):
                failure = self._refused(server, state, reply) or failure
            else:
                self._committed(state)
        if failure:
            await server.link.close()  # The new connection loads the functions again; Redis may have lost them.
            raise StorageUnavailable(f"Redis: {failure}")

    def _committed(self, state: SlotQueue) -> None:
        batch = state.batches.popleft()
        state.before, state.after = state.after, b""
        self._let_go(state, batch)
        self.committed_bytes += batch.size
        cast(StoreServer, state.server).room.written_bytes += batch.size
        self.commits += 1
        _answer(batch.barriers, durable=True)

    def _refused(self, server: StoreServer, state: SlotQueue, error: ResponseError) -> str:
        """Handle an error reply. Returns its text if we don't know what to do about it."""
        text = str(error)
        if text.startswith("FENCED"):
            self.release(state.number)
            _tell(self.on_fenced, state.number)
        # A function that fails in the middle of a batch has written a part of it.
        elif text.startswith("LOST") or is_wrong_type(error):
            log.debug("slot %d: Redis lost committed data, or can't write it: %s", state.number, text)
            self._suspend(state)
            if not is_wrong_type(error):  # What Redis lost of one slot it may have lost of all.
                server.is_unwatched = True
            _tell(self.on_lost, state.number)
        elif isinstance(error, OutOfMemoryError):
            if not server.is_full:
                log.error(
                    "Redis at %s is full (maxmemory): durable sessions take no messages until there is room",
                    server.link.address,
                )
            server.is_full = True
        elif is_moving(error):
            self._suspend(state)
            asyncio.get_running_loop().call_later(bounds.LOG_RETRY_MIN_S, self._go_on, state)
        else:
            return text
        return ""

    def _go_on(self, state: SlotQueue) -> None:
        """Try again to write a slot whose hash slot was being moved."""
        if self._slots.get(state.number) is state:
            state.writable = True
            self._enqueue(state)

    # --- watching Redis -----------------------------------------------------------------------------------------------

    async def _watch(self, server: StoreServer) -> None:
        """Find out without a write that Redis was replaced, lost data, or has room again. Also count the servers with
        slots.
        """
        while True:
            await asyncio.sleep(bounds.STORE_WATCH_EVERY_S)
            self._servers.in_use = len({state.server for state in self._slots.values()})
            try:
                async with server.turn:
                    await self._look(server)
                    if server.is_unwatched:
                        await self._look(server)
            except StorageError:
                pass  # The writer reports it.
            except Exception:  # Otherwise nobody would find it out.
                log.exception("a check of Redis failed")

    async def check(self) -> None:
        """Look at all slots now. Raises StorageError."""
        for server in list(self._servers.all()):
            async with server.turn:
                server.is_unwatched = True
                await self._look(server)

    async def _look(self, server: StoreServer) -> None:
        """Write an empty batch: for one slot, or for all if the server is unwatched. Also ask for the memory use."""
        slots = [state for state in self._slots.values() if state.server is server]
        if not slots:
            server.has_no_slots()
        sure = [state for state in await self._still_at(server, slots) if state.writable and not state.after]
        if not sure:
            return
        looked_at = sure if server.is_unwatched else sure[:1]
        function = WRITE
        calls = []
        for state in looked_at:
            calls.append(WriteBatch().call(function, state.keys, state.before, state.before))
            function = WRITE_FULL
        is_full = False
        *replies, info = await server.link.pipeline([*calls, (b"INFO", b"memory")], apart=True)
        server.room.looked(memory_in(info))
        server.is_unwatched = False
        for state, reply in zip(looked_at, replies, strict=True):
            if isinstance(reply, ResponseError) and self._slots.get(state.number) is state:
                is_full = is_full or isinstance(reply, OutOfMemoryError)
                self._refused(server, state, reply)
        if server.is_full and not is_full:
            server.is_full = False
            log.warning("Redis at %s has room again", server.link.address)

    async def _load_functions(self, link: RedisLink) -> None:
        try:
            await link.call("FUNCTION", "LOAD", "REPLACE", FUNCTIONS)
        except OutOfMemoryError:
            pass  # A full Redis has the functions from before.
        except ResponseError as error:
            raise RedisUnreachable(f"Redis at {link.config.address}: {error}") from None
        self._servers.at(link).is_unwatched = True


def _answer(barriers: list[Done], *, durable: bool) -> None:
    for done in barriers:
        _tell(done, durable)


def _tell(listener: Callable[[_T], None], what: _T) -> None:
    """A listener that raises must not stop the next one."""
    try:
        listener(what)
    except Exception:
        log.exception("a callback of the session store failed")
