"""Redis and the stores over it, without either: what was put is durable when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

from flockmq.durable.session_store import SessionStore, StoreFenced
from flockmq.durable.slot_reader import SlotContents, UnreadableSlot
from flockmq.redis.errors import RedisUnreachable, StorageUnavailable

Fence = tuple[int, int, str]
Change = Callable[["SlotData"], None]
Barrier = Callable[[bool], None]


class SlotData:
    """What Redis has of a slot."""

    def __init__(self) -> None:
        self.fence: Fence | None = None
        self.sessions: dict[bytes, dict[bytes, bytes]] = {}
        self.marks: dict[bytes, bytes] = {}
        self.read_error = ""


class Redis:
    def __init__(self) -> None:
        self.slots: dict[int, SlotData] = {}
        self.is_away = False
        self.slow: asyncio.Event | None = None
        """What is read comes when it is set."""

    def slot(self, number: int) -> SlotData:
        return self.slots.setdefault(number, SlotData())


class Disk(SessionStore):
    """The store of one owner. While it `holds`, nothing becomes durable before `commit`."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.holds = False
        self.full = False
        self.short = False
        self.core_is_short = False
        self.backed_up = False
        self.turn = asyncio.Event()
        """Slots are taken when it is set."""
        self.turn.set()
        self._ours: dict[int, Fence] = {}
        self._ending: dict[int, set[bytes]] = {}
        self._waiting: dict[int, list[tuple[Change | None, Barrier | None]]] = {}
        self._held: dict[int, list[Barrier]] = {}
        """Barriers of slots that are put anew."""

    def put(
        self,
        slot: int,
        client_id: bytes,
        field: bytes,
        value: bytes | None,
        other: bytes = b"",
        other_value: bytes = b"",
    ) -> None:
        if value is None:
            self._later(slot, lambda data: _discard(data.sessions.get(client_id, {}), field))
        else:
            put = {field: value, other: other_value} if other else {field: value}
            self._later(slot, lambda data: data.sessions.setdefault(client_id, {}).update(put))

    def drop(self, slot: int, client_id: bytes) -> None:
        self._later(slot, lambda data: _discard(data.sessions, client_id))
        if self._waiting.get(slot):
            self._ending.setdefault(slot, set()).add(client_id)

    def is_ending(self, slot: int, client_id: bytes) -> bool:
        return client_id in self._ending.get(slot, ())

    def begin_message(self, slot: int) -> None:
        """All that waits becomes durable at once."""

    def mark(self, slot: int, source: bytes, number: bytes | None) -> None:
        if number is None:
            self._later(slot, lambda data: _discard(data.marks, source))
        else:
            self._later(slot, lambda data: data.marks.update({source: number}))

    def is_full(self, slot: int) -> bool:
        return self.full or self.backed_up

    def is_any_full(self) -> bool:
        return self.full or self.backed_up

    def is_short(self, slot: int) -> bool:
        return self.short or self.core_is_short or self.is_full(slot)

    def is_backed_up(self, slot: int) -> bool:
        return self.backed_up

    def begin_anew(self, slot: int) -> None:
        if slot in self._ours:
            self._ending.pop(slot, None)
            waiting = [barrier for _, barrier in self._waiting.pop(slot, []) if barrier is not None]
            self._held[slot] = waiting + self._held.get(slot, [])

    def end_anew(self, slot: int) -> None:
        if (held := self._held.pop(slot, None)) is not None:
            self._waiting.setdefault(slot, []).extend((None, barrier) for barrier in held)
            if not self.holds:
                self._apply(self.redis.slot(slot), self._waiting.pop(slot))

    async def apart(self, slots: Iterable[int]) -> list[list[int]]:
        return [list(slots)]

    def barrier(self, slot: int, done: Barrier) -> None:
        if slot not in self._ours:
            done(False)
        elif slot in self._held:
            self._held[slot].append(done)
        elif self._waiting.get(slot):
            self._waiting[slot].append((None, done))
        else:
            done(True)

    async def take(self, slot: int, fence: str, *, again: bool = False) -> SlotContents:
        async for _, taken in self.take_all({slot: fence}, again=again):
            if isinstance(taken, SlotContents):
                return taken
            raise taken
        raise StorageUnavailable("released")

    async def take_all(
        self, fences: Mapping[int, str], *, again: bool = False
    ) -> AsyncGenerator[tuple[int, SlotContents | StoreFenced | UnreadableSlot]]:
        await self.turn.wait()
        if self.redis.is_away:
            raise RedisUnreachable("away")
        for number, text in fences.items():
            place, incarnation = text.split()
            generation, sequence = place.split("-")
            fence = (int(generation), int(sequence), incarnation)
            if again and self._ours.get(number) != fence:
                continue
            data = self.redis.slot(number)
            if data.fence is not None and data.fence > fence:
                yield number, StoreFenced(data.fence[2])
                continue
            if data.read_error:
                yield number, UnreadableSlot(data.read_error)
                continue
            if self._ours.get(number) != fence:
                self.release(number)
            ours = self._ours.get(number)
            data.fence = fence
            sessions = {client_id: fields.copy() for client_id, fields in data.sessions.items() if fields}
            marks = data.marks.copy()
            if self.redis.slow is not None:
                await self.redis.slow.wait()
            if self._ours.get(number) != ours:
                continue
            self._ours[number] = fence
            yield number, SlotContents(sessions, marks)

    def release(self, slot: int) -> None:
        self._ours.pop(slot, None)
        self._ending.pop(slot, None)
        waiting = [barrier for _, barrier in self._waiting.pop(slot, []) if barrier is not None]
        for barrier in waiting + self._held.pop(slot, []):
            barrier(False)

    def look(self) -> None:
        """Find the slots that another owner took meanwhile, though nothing is written for them."""
        for number, fence in list(self._ours.items()):
            if self.redis.slot(number).fence != fence:
                self.release(number)
                self.on_fenced(number)

    def commit(self) -> None:
        """All that was put is written, and answered; or refused, where another owner took the slot meanwhile."""
        for number in [number for number in self._waiting if number not in self._held]:
            data = self.redis.slot(number)
            if data.fence is None:
                self.on_lost(number)
            elif data.fence != self._ours.get(number):
                self.release(number)
                self.on_fenced(number)
            else:
                self._ending.pop(number, None)
                self._apply(data, self._waiting.pop(number))

    @staticmethod
    def _apply(data: SlotData, queue: list[tuple[Change | None, Barrier | None]]) -> None:
        for change, barrier in queue:
            if change is not None:
                change(data)
            elif barrier is not None:
                barrier(True)

    def _later(self, slot: int, change: Change) -> None:
        if slot not in self._ours:
            return
        if self.holds or slot in self._held or self._waiting.get(slot):
            self._waiting.setdefault(slot, []).append((change, None))
        else:
            change(self.redis.slot(slot))


def _discard(fields: dict[bytes, bytes] | dict[bytes, dict[bytes, bytes]], key: bytes) -> None:
    fields.pop(key, None)
