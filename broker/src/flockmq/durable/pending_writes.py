"""Writes for the slots of this core that aren't durable yet, in batches by slot. No I/O; the store commits them.

Invariants: a slot is in its server's `queue` exactly while it may be written and has a batch that the store hasn't
taken. `queued_bytes` is the sum of the sizes of all batches, and of all servers' `waiting_bytes`.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.bounds import STORE_CHANGE_BYTES
from flockmq.durable.write_batch import Done, ServerQueue, SlotQueue, WriteBatch


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingWrites:
    """Writes for all slots of one core, at all Redis servers."""

    def __init__(self) -> None:
        self.queued_bytes: int = 0
        self._slots: dict[int, SlotQueue] = {}

    def put(self, slot: int, client_id: bytes, field: bytes, value: bytes) -> None:
        """For a slot that this core doesn't own, this and all other writes have no effect; its barriers get False."""
        self._change(slot, client_id, field, value, STORE_CHANGE_BYTES + len(field) + len(value))

    def put_both(
        self, slot: int, client_id: bytes, field: bytes, value: bytes, other: bytes, other_value: bytes
    ) -> None:
        """Put two fields into the same batch."""
        state = self._slots.get(slot)
        if state is not None:
            batch = state.open_batch()
            self._change_in(state, batch, client_id, field, value, STORE_CHANGE_BYTES + len(field) + len(value))
            size = STORE_CHANGE_BYTES + len(other) + len(other_value)
            self._change_in(state, batch, client_id, other, other_value, size)

    def delete(self, slot: int, client_id: bytes, field: bytes) -> None:
        self._change(slot, client_id, field, None, STORE_CHANGE_BYTES + len(field))

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

    def mark(self, slot: int, source: bytes, number: bytes) -> None:
        """Put the last sequence number of a source. The message that `begin_message` began ends."""
        self._mark(slot, source, number)
        state = self._slots.get(slot)
        if state is not None:
            state.is_amid_message = False

    def unmark(self, slot: int, source: bytes) -> None:
        self._mark(slot, source, None)

    def begin_anew(self, slot: int) -> None:
        """Drop all waiting writes of the slot but keep the barriers. The caller writes the whole slot again."""
        state = self._slots.get(slot)
        if state is None:
            return
        anew = WriteBatch()
        while len(state.batches) > (1 if state.after else 0):  # A batch that was sent may have to be sent again.
            batch = state.batches.pop()
            self._let_go(state, batch)
            anew.barriers = batch.barriers + anew.barriers
        state.batches.append(anew)
        self._enqueue(state)

    def barrier(self, slot: int, done: Done) -> None:
        """Call `done(True)` when all writes for the slot are durable, at once if they are. Call `done(False)` when this
        core can't make them durable any more.
        """
        state = self._slots.get(slot)
        if state is None:
            done(False)
        elif state.batches:
            state.batches[-1].barriers.append(done)
        else:
            done(True)

    def _change(self, slot: int, client_id: bytes, field: bytes, value: bytes | None, size: int) -> None:
        state = self._slots.get(slot)
        if state is not None:
            self._change_in(state, state.open_batch(), client_id, field, value, size)

    def _change_in(
        self, state: SlotQueue, batch: WriteBatch, client_id: bytes, field: bytes, value: bytes | None, size: int
    ) -> None:
        fields = batch.sessions.get(client_id)
        if fields is None:
            fields = batch.sessions[client_id] = {}
        fields[field] = value
        self._grow(state, batch, size)

    def _mark(self, slot: int, source: bytes, number: bytes | None) -> None:
        state = self._slots.get(slot)
        if state is not None:
            batch = state.open_batch()
            batch.marks[source] = number
            self._grow(state, batch, STORE_CHANGE_BYTES + len(source))

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
