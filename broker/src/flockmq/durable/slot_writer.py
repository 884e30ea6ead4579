"""Writes to one slot's part of the session store: puts, deletes, and barriers that wait for their commit.

Invariants: puts and deletes reach the store in the order of the calls. When the core loses the slot, the writer is
closed: it ignores further writes and answers barriers with False.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mypy_extensions import mypyc_attr

from flockmq.durable.pending_writes import PendingWrites


@mypyc_attr(allow_interpreted_subclasses=True)
class SlotWriter:
    """The sessions of a slot write to the `SessionStore` through this, until it is closed. No method waits or fails.

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

    def put(self, client_id: bytes, field: bytes, value: bytes) -> None:
        if not self.is_closed:
            self._store.put(self.slot, client_id, field, value)
            self._wrote()

    def put_both(self, client_id: bytes, field: bytes, value: bytes, other: bytes, other_value: bytes) -> None:
        """Put two fields that are committed together."""
        if not self.is_closed:
            self._store.put_both(self.slot, client_id, field, value, other, other_value)
            self._wrote()

    def delete(self, client_id: bytes, field: bytes) -> None:
        if not self.is_closed:
            self._store.delete(self.slot, client_id, field)
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
