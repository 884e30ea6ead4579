"""Writes for the slots of this core that aren't durable yet, in batches by slot. No I/O; the store commits them.

Invariants: a slot is in its server's `queue` exactly while it may be written and has a batch that the store hasn't
taken. `queued_bytes` is the sum of the sizes of all batches, and of all servers' `waiting_bytes`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Final, cast

from mypy_extensions import mypyc_attr

from flockmq import bounds
from flockmq.bounds import STORE_CHANGE_BYTES
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
    """Changes of one slot that become durable together, by one call of a Redis function.

    Invariant: of several changes of one field the last one counts, and ending a session removes its changes. Puts and
    deletes are absolute and a batch is atomic, so their order within it doesn't matter. Redis lists a session in the
    slot's set of sessions when its field META is put; so whoever creates a session puts that field.

    `sessions`: changes of sessions. `marks`: changes of last sequence numbers. `size`: bytes that were put.
    """

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
            begins = META in fields
            if client_id in self._dropped:
                arguments.append(BEGINS_ANEW if begins else ENDS)
            else:
                arguments.append(BEGINS if begins else GOES_ON)
            _extend(arguments, fields)
        if self.marks:
            hashes.append(keys.marks)
            arguments.append(GOES_ON)
            _extend(arguments, self.marks)
        return [b"FCALL", function, 2 + len(hashes), keys.fence, keys.ids, *hashes, *arguments]


@mypyc_attr(allow_interpreted_subclasses=True)
class ServerQueue:
    """The slots at one Redis server. `queue`: slots with something to write, oldest first. `waiting_bytes`: the sum of
    all that waits. `arrived` is called when a slot was added to `queue`.
    """

    def __init__(self, arrived: Callable[[], None]) -> None:
        self.arrived = arrived
        self.queue: dict[int, SlotQueue] = {}
        self.waiting_bytes: int = 0


class SlotQueue:
    """A slot of this core with its batches in order. When the first batch is sent, `after` is set and the batch no
    longer grows.
    """

    __slots__ = (
        "after",
        "batches",
        "before",
        "fence",
        "held_barriers",
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
        self.held_barriers: list[Done] | None = None
        """While the slot is written anew: barriers that wait until all of it was put."""
        self.queued = False
        self.writable = False

    def open_batch(self) -> WriteBatch:
        """The batch for what is put now."""
        batches = self.batches
        most = bounds.STORE_MESSAGE_MAX_BYTES if self.is_amid_message else bounds.STORE_BATCH_MAX_BYTES
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


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingWrites:
    """Writes for all slots of one core, at all Redis servers."""

    def __init__(self) -> None:
        self.queued_bytes: int = 0
        self._slots: dict[int, SlotQueue] = {}

    def put(
        self,
        slot: int,
        client_id: bytes,
        field: bytes,
        value: bytes | None,
        other: bytes = b"",
        other_value: bytes = b"",
    ) -> None:
        """Put a field; None: delete it. If `other` is given, put this field, too, into the same batch. For a slot that
        this core doesn't own, this and all other writes have no effect; its barriers get False.
        """
        state = self._slots.get(slot)
        if state is None:
            return
        batch = state.open_batch()
        fields = batch.sessions.get(client_id)
        if fields is None:
            fields = batch.sessions[client_id] = {}
        fields[field] = value
        size = STORE_CHANGE_BYTES + len(field) + (0 if value is None else len(value))
        if other:
            fields[other] = other_value
            size += STORE_CHANGE_BYTES + len(other) + len(other_value)
        self._grow(state, batch, size)

    def drop(self, slot: int, client_id: bytes) -> None:
        """End the session: delete all its fields."""
        state = self._slots.get(slot)
        if state is not None:
            batch = state.open_batch()
            batch.drop(client_id)
            self._grow(state, batch, STORE_CHANGE_BYTES + len(client_id))

    def is_ending(self, slot: int, client_id: bytes) -> bool:
        """True if a session of the client ended and that isn't durable yet."""
        state = self._slots.get(slot)
        return state is not None and any(batch.drops(client_id) for batch in state.batches)

    def begin_message(self, slot: int) -> None:
        """From now on commit all writes together with the message's sequence number. Otherwise, if the owner crashed
        between the two commits, the next owner would take the message twice.
        """
        state = self._slots.get(slot)
        if state is not None:
            state.open_batch()
            state.is_amid_message = True

    def mark(self, slot: int, source: bytes, number: bytes | None) -> None:
        """Put the last sequence number of a source; None: delete it. The message that `begin_message` began ends."""
        state = self._slots.get(slot)
        if state is not None:
            batch = state.open_batch()
            batch.marks[source] = number
            self._grow(state, batch, STORE_CHANGE_BYTES + len(source))
            state.is_amid_message = False

    def begin_anew(self, slot: int) -> None:
        """Drop all waiting writes of the slot but keep the barriers. The caller puts the whole slot again, then calls
        `end_anew`. Until then nothing of it is written: a part of the slot must not answer a barrier. If the caller
        fails amid it, the slot must be taken again, and begun anew.
        """
        state = self._slots.get(slot)
        if state is None:
            return
        self._suspend(state)
        held = state.held_barriers or []
        while len(state.batches) > (1 if state.after else 0):  # A batch that was sent may have to be sent again.
            batch = state.batches.pop()
            self._let_go(state, batch)
            held = batch.barriers + held
        state.held_barriers = held

    def end_anew(self, slot: int) -> None:
        """All of the slot was put. The barriers are answered when the last of it is durable."""
        state = self._slots.get(slot)
        if state is None or state.held_barriers is None:
            return
        if not state.batches:
            state.batches.append(WriteBatch())
        state.batches[-1].barriers += state.held_barriers
        state.held_barriers = None
        state.writable = True
        self._enqueue(state)

    def barrier(self, slot: int, done: Done) -> None:
        """Call `done(True)` when all writes for the slot are durable, at once if they are. Call `done(False)` when this
        core can't make them durable any more.
        """
        state = self._slots.get(slot)
        if state is None:
            done(False)
        elif state.held_barriers is not None:
            state.held_barriers.append(done)
        elif state.batches:
            state.batches[-1].barriers.append(done)
        else:
            done(True)

    def _grow(self, state: SlotQueue, batch: WriteBatch, size: int) -> None:
        batch.size += size
        self.queued_bytes += size
        state.server.waiting_bytes += size
        if not state.queued:
            self._enqueue(state)

    def _enqueue(self, state: SlotQueue) -> None:
        if state.writable and not state.queued and state.batches:
            state.queued = True
            state.server.queue[state.number] = state
            state.server.arrived()

    def _suspend(self, state: SlotQueue) -> None:
        """Don't write the slot until it is taken again."""
        state.writable = state.queued = False
        state.server.queue.pop(state.number, None)

    def _let_go(self, state: SlotQueue, batch: WriteBatch) -> None:
        """The batch no longer waits."""
        self.queued_bytes -= batch.size
        state.server.waiting_bytes -= batch.size

    def _move(self, state: SlotQueue, server: ServerQueue) -> None:
        """The slot is at another Redis server now."""
        state.server.queue.pop(state.number, None)
        state.queued = False
        waiting_bytes = sum(batch.size for batch in state.batches)
        state.server.waiting_bytes -= waiting_bytes
        server.waiting_bytes += waiting_bytes
        state.server = server
        self._enqueue(state)


@mypyc_attr(allow_interpreted_subclasses=True)
class SlotWriter:
    """The sessions of a slot write to the `SessionStore` through this, until it is closed. No method waits or fails.
    Puts and deletes reach the store in the order of the calls.

    It calls `wrote` after each write, and `flush` after each answered barrier. `is_closed`: another core owns the slot
    now; writes are ignored.
    """

    def __init__(self, slot: int, store: PendingWrites, wrote: Callable[[], None], flush: Callable[[], None]) -> None:
        self.slot: int = slot
        self.is_closed: bool = False
        self._store = store
        self._wrote = wrote
        self._flush = flush

    def close(self) -> None:
        """Another core owns the slot now. If the slot comes back, it gets a new writer."""
        self.is_closed = True

    def put(self, client_id: bytes, field: bytes, value: bytes, other: bytes = b"", other_value: bytes = b"") -> None:
        """Put a field. If `other` is given, put this field, too; both are committed together."""
        if not self.is_closed:
            self._store.put(self.slot, client_id, field, value, other, other_value)
            self._wrote()

    def delete(self, client_id: bytes, field: bytes) -> None:
        if not self.is_closed:
            self._store.put(self.slot, client_id, field, None)
            self._wrote()

    def drop(self, client_id: bytes) -> None:
        """End the session: delete all its fields."""
        if not self.is_closed:
            self._store.drop(self.slot, client_id)

    def barrier(self, done: Callable[[bool], None]) -> None:
        """Call `done` once, maybe before this returns. It gets True when all earlier writes are committed, or False
        when this owner can't commit them any more. Barriers are answered in the order of the calls.
        """
        if self.is_closed:
            done(False)
        else:
            self._store.barrier(self.slot, partial(self._answered, done))

    def _answered(self, done: Callable[[bool], None], durable: bool) -> None:
        """The store calls this between two event-loop iterations."""
        done(durable)
        self._flush()


def if_durable(then: Callable[[], None], durable: bool) -> None:
    """Call `then` only if the change is durable. If it isn't, nobody answers: the client is disconnected, or asks the
    slot's new owner."""
    if durable:
        then()
