"""Reads the contents of slots from Redis, after the owner's fence stops all other writers: many keys a round trip.

Invariants:
- A slot comes whole, as it was when its fence was set, or not at all. All is read on the connection that set the fence,
  because cursors end with a restart of Redis; and the fence is still there behind the last read.
- Small slots come first, and the amount of data that was read but not yet taken over is bounded. A slot with more data
  than the current budget is put back, and read later together with fewer others.
- A key of a wrong type makes its session unreadable, or, if it belongs to the slot, the slot; everything else is still
  read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from redis.exceptions import ResponseError

from flockmq import bounds
from flockmq.durable.pending_writes import SlotKeys
from flockmq.redis.connection import RedisConnection
from flockmq.redis.errors import StorageUnavailable
from flockmq.redis.link import RedisLink, Reply

START: Final = b"0"
_GROWTH: Final = 8
_FIELDS_FIRST: Final = 4
"""Fields to ask for first, while the size of a session's fields is unknown."""


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
    in Redis.
    """

    def __init__(self, link: RedisLink, connection: RedisConnection | None, fences: Mapping[SlotKeys, bytes]) -> None:
        self._link = link
        self._connection = connection
        self._fences = fences

    async def slots(self) -> AsyncGenerator[tuple[SlotKeys, SlotContents | UnreadableSlot]]:
        """A slot whose fence changed meanwhile doesn't come: another core took it, or Redis lost it. Raises
        RedisUnreachable, StorageUnavailable.
        """
        waiting, budget = deque(self._fences), bounds.STORE_SLOT_SMALL_BYTES
        while waiting:
            later: deque[SlotKeys] = deque()
            together = max(1, min(bounds.STORE_TAKE_SLOTS, bounds.STORE_READ_MAX_BYTES // budget))
            while waiting:
                some = [_Slot(waiting.popleft()) for _ in range(min(len(waiting), together))]
                await self._read(some, budget if together > 1 else 0)
                later += [slot.keys for slot in some if slot.is_large]
                for slot in await self._unchanged([slot for slot in some if not slot.is_large]):
                    yield slot.keys, slot.outcome()
            waiting, budget = later, budget * _GROWTH

    async def _read(self, slots: Sequence[_Slot], budget: int) -> None:
        """Until each is complete, or `is_large`: it has more bytes than `budget` (0: no limit)."""
        heads = [(slot, scan) for slot in slots for scan in (slot.ids, slot.marks)]
        await self._scan(deque(heads), bounds.STORE_READ_KEYS, budget)
        sessions = [(slot, scan) for slot in slots if not slot.is_large for scan in slot.next_scans()]
        await self._scan(deque(sessions), bounds.STORE_READ_KEYS // 8, budget)

    async def _scan(self, waiting: deque[tuple[_Slot, _Scan]], keys: int, budget: int) -> None:
        """`keys`: how many keys to read in the first round trip."""
        while some := list(_first(waiting, keys)):
            commands = [(scan.command, scan.key, scan.cursor, b"COUNT", scan.fields) for _, scan in some]
            replies = await self._link.pipeline(commands, on=self._connection)
            came = 0
            for (slot, scan), reply in zip(some, replies, strict=True):
                size = scan.take(reply)
                came += size
                slot.size += size
                slot.is_large = 0 < budget < slot.size
                if scan.cursor != START:
                    waiting.append((slot, scan))
            room = keys * bounds.STORE_READ_BYTES // max(1, came)
            keys = max(1, min(2 * keys, room, bounds.STORE_READ_KEYS))

    async def _unchanged(self, slots: Sequence[_Slot]) -> list[_Slot]:
        """Those whose fence is still the same."""
        gets = [(b"GET", slot.keys.fence) for slot in slots]
        fences = await self._link.pipeline(gets, on=self._connection) if gets else []
        return [slot for slot, fence in zip(slots, fences, strict=True) if fence == self._fences[slot.keys]]


class _Scan:
    """Reads one key with a cursor. Redis may return a member twice while it rehashes."""

    __slots__ = ("command", "cursor", "error", "fields", "found", "key")

    def __init__(self, command: bytes, key: bytes, fields: int) -> None:
        """`fields`: how many fields to ask for first."""
        self.command = command
        self.key = key
        self.cursor = START
        self.fields = fields
        self.found: list[bytes] = []
        self.error = ""

    def pairs(self) -> dict[bytes, bytes]:
        fields = iter(self.found)
        return dict(zip(fields, fields, strict=True))

    def take(self, reply: Reply | ResponseError) -> int:
        """Take one page of the reply; returns its size in bytes. Raises StorageUnavailable."""
        match reply:
            case [bytes(cursor), list(found)]:
                self.cursor = cursor
                self.found += cast(list[bytes], found)  # Members, or fields and values.
                size = sum(map(len, cast(list[bytes], found)))
                room = bounds.STORE_READ_BYTES // 4 // max(1, size // self.fields)
                self.fields = max(1, min(8 * self.fields, room, bounds.STORE_READ_FIELDS))
                return size
            case ResponseError() if is_wrong_type(reply):
                self.error = f"{self.key!r}: {reply}"
                self.cursor = START
                return 0
        raise StorageUnavailable(f"{self.key!r} can't be read: {reply!r}")


class _Slot:
    """A slot that is being read: first its client ids and sequence numbers, then its sessions."""

    __slots__ = ("ids", "is_large", "keys", "marks", "sessions", "size")

    def __init__(self, keys: SlotKeys) -> None:
        self.keys = keys
        self.ids = _Scan(b"SSCAN", keys.ids, bounds.STORE_READ_FIELDS)
        self.marks = _Scan(b"HSCAN", keys.marks, bounds.STORE_READ_FIELDS)
        self.sessions: dict[bytes, _Scan] = {}
        self.size = 0
        self.is_large = False

    def next_scans(self) -> list[_Scan]:
        """The scans of its sessions, once these are known."""
        if self.ids.error or self.marks.error:
            return []
        prefix = self.keys.sessions
        self.sessions = {client_id: _Scan(b"HSCAN", prefix + client_id, _FIELDS_FIRST) for client_id in self.ids.found}
        return list(self.sessions.values())

    def outcome(self) -> SlotContents | UnreadableSlot:
        if error := self.ids.error or self.marks.error:
            return UnreadableSlot(error)
        scans = self.sessions.items()
        return SlotContents(
            {client_id: scan.pairs() for client_id, scan in scans if not scan.error},
            self.marks.pairs(),
            {client_id: scan.error for client_id, scan in scans if scan.error},
        )


def _first(waiting: deque[tuple[_Slot, _Scan]], count: int) -> Iterator[tuple[_Slot, _Scan]]:
    """Removes the next scans from the queue; skips scans of slots that were put back."""
    while waiting and count:
        slot, scan = waiting.popleft()
        if not slot.is_large:
            count -= 1
            yield slot, scan
