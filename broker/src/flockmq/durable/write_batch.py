"""Changes of one slot that become durable together, by one call of a Redis function. No I/O.

Invariant: of several changes of one field the last one counts, and ending a session removes its changes. Puts and
deletes are absolute and a batch is atomic, so their order within it doesn't matter. Redis lists a session in the slot's
set of sessions when its field META is put; so whoever creates a session puts that field.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Final, cast

from mypy_extensions import mypyc_attr

from flockmq import bounds
from flockmq.redis.link import Argument

Done = Callable[[bool], None]
Fields = dict[bytes, bytes | None]
"""Field → value; None: delete the field."""

META: Final = b"m"

GOES_ON: Final = b"K"
BEGINS: Final = b"B"
ENDS: Final = b"E"
BEGINS_ANEW: Final = b"R"


class SlotKeys:
    """The Redis keys of a slot. They share the hash tag `{sN}`."""

    __slots__ = ("fence", "ids", "marks", "sessions", "text")

    def __init__(self, slot: int) -> None:
        prefix = b"flockmq:{s%d}:" % slot
        self.fence = prefix + b"fence"
        self.ids = prefix + b"ids"
        self.marks = prefix + b"marks"
        self.sessions = prefix + b"c:"
        """Prefix; the client id follows."""
        self.text = self.fence.decode()


class WriteBatch:
    """`sessions`: changes of sessions. `marks`: changes of last sequence numbers. `size`: bytes that were put."""

    __slots__ = ("_dropped", "barriers", "marks", "sessions", "size")

    def __init__(self) -> None:
        self.sessions: dict[bytes, Fields] = {}
        self.marks: Fields = {}
        self.barriers: list[Done] = []
        self.size = 0
        self._dropped: set[bytes] = set()

    def drop(self, client_id: bytes) -> None:
        """End the session. What is put for it afterwards begins a new one."""
        self.sessions[client_id] = {}
        self._dropped.add(client_id)

    def drops(self, client_id: bytes) -> bool:
        """True if the batch ends a session of this client."""
        return client_id in self._dropped

    def call(self, function: bytes, keys: SlotKeys, before: bytes, after: bytes) -> list[Argument]:
        """The Redis command for this batch. Redis executes it if the slot's fence is `before`, and sets the fence to
        `after`.
        """
        hashes: list[Argument] = []
        arguments: list[Argument] = [before, after]
        for client_id, fields in self.sessions.items():
            hashes.append(keys.sessions + client_id)
            arguments.append(self._verb(client_id, fields))
            _extend(arguments, fields)
        if self.marks:
            hashes.append(keys.marks)
            arguments.append(GOES_ON)
            _extend(arguments, self.marks)
        return [b"FCALL", function, 2 + len(hashes), keys.fence, keys.ids, *hashes, *arguments]

    def _verb(self, client_id: bytes, fields: Fields) -> bytes:
        if client_id in self._dropped:
            return BEGINS_ANEW if META in fields else ENDS
        return BEGINS if META in fields else GOES_ON


@mypyc_attr(allow_interpreted_subclasses=True)
class ServerQueue:
    """The slots at one Redis server. `queue`: slots with something to write, oldest first. `waiting_bytes`: the sum of
    all that waits.
    """

    def __init__(self) -> None:
        self.queue: dict[int, SlotQueue] = {}
        self.waiting_bytes: int = 0

    def arrived(self) -> None:
        """A slot was added to `queue`."""
        raise NotImplementedError(type(self).__name__)


class SlotQueue:
    """A slot of this core with its batches in order. When the first batch is sent, `after` is set and the batch no
    longer grows.
    """

    __slots__ = (
        "after",
        "batches",
        "before",
        "fence",
        "is_amid_message",
        "keys",
        "number",
        "queued",
        "server",
        "writable",
    )

    def __init__(self, number: int, fence: bytes, server: ServerQueue) -> None:
        self.number = number
        self.keys = SlotKeys(number)
        self.fence = fence
        self.server = server
        self.before = b""
        """The fence that Redis must have before the first batch."""
        self.after = b""
        """The fence that the first batch sets; empty: it wasn't sent yet and may still grow."""
        self.batches: deque[WriteBatch] = deque()
        self.is_amid_message = False
        """All writes go into the batch in which the current message began."""
        self.queued = False
        self.writable = False

    def open_batch(self) -> WriteBatch:
        """The batch for what is put now."""
        batches = self.batches
        most = bounds.STORE_LETTER_MAX_BYTES if self.is_amid_message else bounds.STORE_BATCH_MAX_BYTES
        if not batches or (self.after and len(batches) == 1) or batches[-1].size >= most:
            batches.append(WriteBatch())
        return batches[-1]


def _extend(arguments: list[Argument], fields: Fields) -> None:
    """Append the number of put arguments, the number of deleted fields, and both lists."""
    deletes = [field for field, value in fields.items() if value is None]
    arguments += 2 * (len(fields) - len(deletes)), len(deletes)
    if deletes:
        for field, value in fields.items():
            if value is not None:
                arguments += field, value
        arguments += deletes
    else:
        arguments.extend(chain.from_iterable(cast(dict[bytes, bytes], fields).items()))
