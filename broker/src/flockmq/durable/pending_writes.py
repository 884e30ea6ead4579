"""What is put for the slots that this core owns, until it is durable: in their batches. Pure; the store commits them.

What always holds: a slot is in its line's `queue` exactly while it may be written and has a batch that no turn of the
store has taken; `queued_bytes` is the sum of all batches' sizes, and of all lines' `waiting_bytes`.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.bounds import STORE_CHANGE_BYTES
from flockmq.durable.write_batch import Done, ServerQueue, SlotQueue, WriteBatch


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingWrites:
    """Of the slots of one core, at whatever servers."""

    def __init__(self) -> None:
        self.queued_bytes: int = 0
        self._slots: dict[int, SlotQueue] = {}

    def put(self, slot: int, client_id: bytes, field: bytes, value: bytes) -> None:
        """Of a slot that isn't ours this and what follows is nothing; its barriers say so."""
        self._change(slot, client_id, field, value, STORE_CHANGE_BYTES + len(field) + len(value))

    def put_both(
        self, slot: int, client_id: bytes, field: bytes, value: bytes, other: bytes, other_value: bytes
    ) -> None:
        """In one batch."""
        state = self._slots.get(slot)
        if state is not None:
            batch = state.open_batch()
            self._change_in(state, batch, client_id, field, value, STORE_CHANGE_BYTES + len(field) + len(value))
            size = STORE_CHANGE_BYTES + len(other) + len(other_value)
            self._change_in(state, batch, client_id, other, other_value, size)

    def delete(self, slot: int, client_id: bytes, field: bytes) -> None:
        self._change(slot, client_id, field, None, STORE_CHANGE_BYTES + len(field))

    def drop(self, slot: int, client_id: bytes) -> None:
        """The session ends, with all its fields."""
        state = self._slots.get(slot)
        if state is not None:
            batch = state.open_batch()
            batch.drop(client_id)
            self._grow(state, batch, STORE_CHANGE_BYTES + len(client_id))

    def is_ending(self, slot: int, client_id: bytes) -> bool:
        """A session of the client ended, and that isn't durable yet."""
        state = self._slots.get(slot)
        return state is not None and any(batch.drops(client_id) for batch in state.batches)

    def begin_message(self, slot: int) -> None:
        """Commit what is put from now on together with the message's mark. Else an owner that dies in between has taken
        the message, and the next one doesn't know.
        """
        state = self._slots.get(slot)
        if state is not None:
            state.open_batch()
            state.is_amid_message = True

    def mark(self, slot: int, source: bytes, number: bytes) -> None:
        """The message ends."""
        self._mark(slot, source, number)
        state = self._slots.get(slot)
        if state is not None:
            state.is_amid_message = False

    def unmark(self, slot: int, source: bytes) -> None:
        self._mark(slot, source, None)

    def begin_anew(self, slot: int) -> None:
        """Whoever calls puts all that the slot has: of what waits only the barriers stay."""
        state = self._slots.get(slot)
        if state is None:
            return
        anew = WriteBatch()
        while len(state.batches) > (1 if state.after else 0):  # what is on its way may come again
            batch = state.batches.pop()
            self._let_go(state, batch)
            anew.barriers = batch.barriers + anew.barriers
        state.batches.append(anew)
        self._enqueue(state)

    def barrier(self, slot: int, done: Done) -> None:
        """`done(True)` when all that was put for the slot is durable, at once if it is; `done(False)` when it never
        will be by us."""
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
        state.line.waiting_bytes += size
        if not state.queued:
            self._enqueue(state)

    def _enqueue(self, state: SlotQueue) -> None:
        if state.writable and not state.queued and state.batches:
            state.queued = True
            state.line.queue[state.number] = state
            state.line.arrived()

    def _suspend(self, state: SlotQueue) -> None:
        """It isn't written until it is taken."""
        state.writable = state.queued = False
        state.line.queue.pop(state.number, None)

    def _let_go(self, state: SlotQueue, batch: WriteBatch) -> None:
        """The batch doesn't wait any more."""
        self.queued_bytes -= batch.size
        state.line.waiting_bytes -= batch.size

    def _move(self, state: SlotQueue, line: ServerQueue) -> None:
        """Another server has the slot."""
        state.line.queue.pop(state.number, None)
        state.queued = False
        waiting_bytes = sum(batch.size for batch in state.batches)
        state.line.waiting_bytes -= waiting_bytes
        line.waiting_bytes += waiting_bytes
        state.line = line
        self._enqueue(state)
