"""What a slot has in Redis, read by its owner once nobody else can write it: in pieces, many keys a round trip."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from redis.exceptions import ResponseError

from flockmq import bounds
from flockmq.home.batch import SlotKeys
from flockmq.rlog.errors import LogUnavailable
from flockmq.rlog.redis import RedisLink, Reply

START: Final = b"0"


@dataclass(slots=True)
class Taken:
    """What a slot has. Client id -> field -> value; source of messages -> its mark."""

    sessions: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)
    marks: dict[bytes, bytes] = field(default_factory=dict)


async def read_slots(link: RedisLink, slots: Sequence[SlotKeys]) -> list[Taken]:
    """Of slots that one server has. Raises RedisUnreachable, LogUnavailable."""
    ids = [_Scan(b"SSCAN", keys.ids) for keys in slots]
    marks = [_Scan(b"HSCAN", keys.marks) for keys in slots]
    await _read(link, (*ids, *marks))
    sessions = [
        {client_id: _Scan(b"HSCAN", keys.sessions + client_id) for client_id in scan.found}
        for keys, scan in zip(slots, ids, strict=True)
    ]
    await _read(link, (scan for of_slot in sessions for scan in of_slot.values()))
    return [
        Taken({client_id: scan.pairs() for client_id, scan in of_slot.items()}, mark.pairs())
        for of_slot, mark in zip(sessions, marks, strict=True)
    ]


class _Scan:
    """One key, read by a cursor. Members may come twice while Redis rehashes."""

    __slots__ = ("command", "cursor", "found", "key")

    def __init__(self, command: bytes, key: bytes) -> None:
        self.command = command
        self.key = key
        self.cursor = START
        self.found: list[bytes] = []

    def pairs(self) -> dict[bytes, bytes]:
        fields = iter(self.found)
        return dict(zip(fields, fields, strict=True))


async def _read(link: RedisLink, scans: Iterable[_Scan]) -> None:
    waiting = deque(scans)
    while waiting:
        some = [waiting.popleft() for _ in range(min(len(waiting), bounds.STORE_READ_KEYS))]
        replies = await link.pipeline([(s.command, s.key, s.cursor, b"COUNT", bounds.STORE_READ_FIELDS) for s in some])
        for scan, reply in zip(some, replies, strict=True):
            if _take_page(scan, reply):
                waiting.append(scan)


def _take_page(scan: _Scan, reply: Reply | ResponseError) -> bool:
    """Whether there is more."""
    match reply:
        case [bytes(cursor), list(found)]:
            scan.cursor = cursor
            scan.found += cast(list[bytes], found)  # members, fields and values
            return cursor != START
    raise LogUnavailable(f"{scan.key!r} can't be read: {reply!r}")
