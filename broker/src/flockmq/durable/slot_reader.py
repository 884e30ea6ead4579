"""Reads the contents of slots from Redis, after the owner's fence stops all other writers: many keys a round trip.

Invariants:
- A slot comes whole, as it was when its fence was set, or not at all. All is read on the connection that set the fence,
  because cursors end with a restart of Redis; and the fence is still there behind the last read.
- Each key's size is asked for before it is read. So it is bounded how much one round trip brings, and how much was read
  but not yet taken over. Only a key that is larger is read alone, in pages, and a larger slot alone.
- Small slots come first. A large one is put back until all small ones are read.
- A key of a wrong type makes its session unreadable, or, if it belongs to the slot, the slot; everything else is still
  read. A slot whose hash slot is being moved to another master doesn't come, and holds up no other. A session whose key
  isn't there has ended: its owner crashed behind a batch that failed amid it (functions.lua).
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

from redis.exceptions import ResponseError

from flockmq import bounds
from flockmq.durable.pending_writes import SlotKeys
from flockmq.redis.connection import RedisConnection
from flockmq.redis.errors import StorageUnavailable
from flockmq.redis.link import Argument, RedisLink, Reply, is_moving

START: Final = b"0"
_GROWTH: Final = 8


@dataclass(slots=True)
class SlotContents:
    """What Redis has of a slot. `sessions`: client id → field → value. `marks`: message source → its last sequence
    number. `unread`: client id → why its session can't be read.
    """

    sessions: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)
    marks: dict[bytes, bytes] = field(default_factory=dict)
    unread: dict[bytes, str] = field(default_factory=dict)


class UnreadableSlot(Exception):
    """A slot's data in Redis can't be read or written. The text names the key and the reason."""


def is_wrong_type(error: ResponseError) -> bool:
    """True if a key has a wrong type; also for a key that a Redis function uses."""
    return "WRONGTYPE" in str(error)


class SlotReading:
    """Reads slots that are on one server. `connection`: the one on which their fences were set. `fences`: their values
    in Redis. `page_bytes`: how much one round trip may bring, or about that if one key has more.
    """

    def __init__(
        self, link: RedisLink, connection: RedisConnection | None, fences: Mapping[SlotKeys, bytes], page_bytes: int
    ) -> None:
        self._link = link
        self._connection = connection
        self._fences = fences
        self._page_bytes = page_bytes
        self.moving: list[SlotKeys] = []
        """Those that didn't come because their hash slot is being moved to another master."""

    async def slots(self) -> AsyncGenerator[tuple[SlotKeys, SlotContents | UnreadableSlot]]:
        """A slot whose fence changed meanwhile doesn't come: another core took it, or Redis lost it. Raises
        RedisUnreachable, StorageUnavailable.
        """
        waiting = deque(self._fences)
        large: dict[SlotKeys, int] = {}
        while waiting:
            some = [_Slot(waiting.popleft()) for _ in range(min(len(waiting), bounds.STORE_TAKE_SLOTS))]
            await self._measure([scan for slot in some for scan in slot.lists()])
            for listed in _together({slot: slot.size() for slot in some}):
                await self._list(listed)
                sizes = {slot: slot.size() for slot in listed}
                large.update((slot.keys, size) for slot, size in sizes.items() if size > bounds.STORE_SLOT_SMALL_BYTES)
                small = {slot: size for slot, size in sizes.items() if size <= bounds.STORE_SLOT_SMALL_BYTES}
                for group in _together(small):
                    for slot in await self._read(group):
                        yield slot.keys, slot.contents()
        for keys in _together(large):
            some = [_Slot(of_slot) for of_slot in keys]
            await self._measure([scan for slot in some for scan in slot.lists()])
            await self._list(some)
            for slot in await self._read(some):
                yield slot.keys, slot.contents()

    async def _measure(self, scans: Sequence[_Scan]) -> None:
        for at in range(0, len(scans), bounds.STORE_MEASURE_KEYS):
            some = scans[at : at + bounds.STORE_MEASURE_KEYS]
            sizes = [(b"MEMORY", b"USAGE", scan.key, b"SAMPLES", 0) for scan in some]
            replies = await self._link.pipeline(sizes, on=self._connection, apart=True)
            for scan, reply in zip(some, replies, strict=True):
                scan.measured(reply)

    async def _list(self, slots: Sequence[_Slot]) -> None:
        """Read which sessions the slots have, and ask for their sizes."""
        await self._scan([scan for slot in slots for scan in slot.lists()])
        await self._measure([scan for slot in slots for scan in slot.begin_sessions()])

    async def _read(self, slots: Sequence[_Slot]) -> list[_Slot]:
        """Read the sessions. Returns the slots whose fence is still the same, and that were read whole."""
        await self._scan([scan for slot in slots for scan in slot.sessions.values()])
        gets = [(b"GET", slot.keys.fence) for slot in slots]
        fences = await self._link.pipeline(gets, on=self._connection, apart=True)
        self.moving += [
            slot.keys for slot, fence in zip(slots, fences, strict=True) if slot.is_moving() or _is_moving(fence)
        ]
        return [
            slot
            for slot, fence in zip(slots, fences, strict=True)
            if fence == self._fences[slot.keys] and not slot.is_moving()
        ]

    async def _scan(self, scans: Sequence[_Scan]) -> None:
        waiting = deque(scans)
        while some := list(self._next(waiting)):
            commands = [scan.next_page(self._page_bytes) for scan in some]
            replies = await self._link.pipeline(commands, on=self._connection, apart=True)
            for scan, reply in zip(some, replies, strict=True):
                scan.take(reply)
                if scan.cursor != START:
                    waiting.append(scan)

    def _next(self, waiting: deque[_Scan]) -> Iterator[_Scan]:
        """Remove the keys for the next round trip: what they have left fits into it, or it is one key."""
        room = self._page_bytes
        for count in range(bounds.STORE_READ_KEYS):
            if not waiting or (count and waiting[0].left > room):
                return
            scan = waiting.popleft()
            room -= scan.left
            yield scan


class _Scan:
    """Reads one key with a cursor. Redis may return a member twice while it rehashes. `size`: the memory that the key
    uses in Redis, which is more than its contents. `left`: at most so many bytes are still to come.
    """

    __slots__ = ("_came", "_command", "_fields", "cursor", "error", "found", "is_moving", "key", "left", "size")

    def __init__(self, command: bytes, key: bytes) -> None:
        self.key = key
        self.cursor = START
        self.size = 0
        self.left = 0
        self.found: list[bytes] = []
        self.error = ""
        self.is_moving = False
        """Its hash slot is being moved, and it may be at the next master by now."""
        self._command = command
        self._fields = 0
        """How many fields were asked for last."""
        self._came = 0

    def measured(self, reply: Reply | ResponseError) -> None:
        """Raises StorageUnavailable."""
        if _is_moving(reply):
            self.is_moving = True
        elif isinstance(reply, ResponseError):
            raise StorageUnavailable(f"the size of {self.key!r} can't be read: {reply!r}")
        self.size = self.left = reply if isinstance(reply, int) else 0  # None: there is no such key.

    def next_page(self, page_bytes: int) -> Sequence[Argument]:
        """The command for the next page. If what is left may be more: few fields at first, because each may be as large
        as a packet, then more, by the size of those that came.
        """
        fields = bounds.STORE_READ_FIELDS
        if self.left > page_bytes:
            field_bytes = self._came // max(1, len(self.found) // 2)
            fields = max(1, min(_GROWTH * self._fields, page_bytes // max(1, field_bytes), fields))
        self._fields = fields
        return self._command, self.key, self.cursor, b"COUNT", fields

    def take(self, reply: Reply | ResponseError) -> None:
        """Take one page of the reply. Raises StorageUnavailable."""
        match reply:
            case [bytes(cursor), list(found)]:
                members = cast(list[bytes], found)  # Members, or fields and values.
                size = sum(map(len, members))
                self.cursor = cursor
                self.found += members
                self.left = max(0, self.left - size)
                self._came += size
            case ResponseError() if is_wrong_type(reply):
                self.error = f"{self.key!r}: {reply}"
                self.cursor = START
            case ResponseError() if is_moving(reply):
                self.is_moving = True
                self.cursor = START
            case _:
                raise StorageUnavailable(f"{self.key!r} can't be read: {reply!r}")

    def pairs(self) -> dict[bytes, bytes]:
        fields = iter(self.found)
        return dict(zip(fields, fields, strict=True))


class _Slot:
    """A slot that is being read: first its client ids and sequence numbers, then its sessions."""

    __slots__ = ("ids", "keys", "marks", "sessions")

    def __init__(self, keys: SlotKeys) -> None:
        self.keys = keys
        self.ids = _Scan(b"SSCAN", keys.ids)
        self.marks = _Scan(b"HSCAN", keys.marks)
        self.sessions: dict[bytes, _Scan] = {}

    def lists(self) -> tuple[_Scan, _Scan]:
        return self.ids, self.marks

    def begin_sessions(self) -> list[_Scan]:
        """The scans of its sessions, now that these are known."""
        if not self.ids.error and not self.marks.error:
            prefix = self.keys.sessions
            self.sessions = {client_id: _Scan(b"HSCAN", prefix + client_id) for client_id in self.ids.found}
        return list(self.sessions.values())

    def is_moving(self) -> bool:
        return any(scan.is_moving for scan in (*self.lists(), *self.sessions.values()))

    def size(self) -> int:
        """Of all that is known of it."""
        return self.ids.size + self.marks.size + sum([scan.size for scan in self.sessions.values()])

    def contents(self) -> SlotContents | UnreadableSlot:
        """What was read; it isn't kept here."""
        if error := self.ids.error or self.marks.error:
            return UnreadableSlot(error)
        sessions, self.sessions = self.sessions, {}
        scans = sessions.items()
        return SlotContents(
            {client_id: scan.pairs() for client_id, scan in scans if scan.found and not scan.error},
            self.marks.pairs(),
            {client_id: scan.error for client_id, scan in scans if scan.error},
        )


def _is_moving(reply: Reply | ResponseError) -> bool:
    return isinstance(reply, ResponseError) and is_moving(reply)


_T = TypeVar("_T")


def _together(sizes: Mapping[_T, int]) -> Iterator[list[_T]]:
    """Groups of at most STORE_READ_MAX_BYTES, or of one that has more. Small ones come first."""
    group: list[_T] = []
    room = bounds.STORE_READ_MAX_BYTES
    for item in sorted(sizes, key=sizes.__getitem__):
        if group and sizes[item] > room:
            yield group
            group, room = [], bounds.STORE_READ_MAX_BYTES
        group.append(item)
        room -= sizes[item]
    if group:
        yield group
