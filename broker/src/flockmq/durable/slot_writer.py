"""One slot's part of the store, as the sessions of the slot see it: what they put, and barriers behind it.

What always holds: puts and deletes reach the store in their order. When the slot is let go of the journal is closed:
nothing more is put, and barriers get False.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mypy_extensions import mypyc_attr

from flockmq.durable.pending_writes import PendingWrites


@mypyc_attr(allow_interpreted_subclasses=True)
class Journal:
    """One slot's store, as its sessions see it; implemented by their owner. Nothing here waits or fails.

    `is_closed`: the slot is another core's, and nothing is put any more.
    """

    def __init__(self, slot: int) -> None:
        self.slot: int = slot
        self.is_closed: bool = False

    def put(self, client_id: bytes, field: bytes, value: bytes) -> None:
        raise NotImplementedError(type(self).__name__)

    def put_both(self, client_id: bytes, field: bytes, value: bytes, other: bytes, other_value: bytes) -> None:
        """They are committed together, or neither is."""
        raise NotImplementedError(type(self).__name__)

    def delete(self, client_id: bytes, field: bytes) -> None:
        raise NotImplementedError(type(self).__name__)

    def drop(self, client_id: bytes) -> None:
        """The session ends, with all its fields."""
        raise NotImplementedError(type(self).__name__)

    def barrier(self, done: Callable[[bool], None]) -> None:
        """`done` is called once, maybe at once: True when all that was put before is committed, False when it never
        will be by us. Barriers are answered in the order in which they were asked for.
        """
        raise NotImplementedError(type(self).__name__)


class SlotJournal(Journal):
    """One slot's part of the store, until it is `closed`. `unsealed`: something was put; what barriers let go is
    flushed.
    """

    def __init__(
        self, slot: int, store: PendingWrites, unsealed: Callable[[], None], flush: Callable[[], None]
    ) -> None:
        super().__init__(slot)
        self._store = store
        self._unsealed = unsealed
        self._flush = flush

    def close(self) -> None:
        """The slot is another core's; when it comes back it has another journal."""
        self.is_closed = True

    def put(self, client_id: bytes, field: bytes, value: bytes) -> None:
        if not self.is_closed:
            self._store.put(self.slot, client_id, field, value)
            self._unsealed()

    def put_both(self, client_id: bytes, field: bytes, value: bytes, other: bytes, other_value: bytes) -> None:
        if not self.is_closed:
            self._store.put_both(self.slot, client_id, field, value, other, other_value)
            self._unsealed()

    def delete(self, client_id: bytes, field: bytes) -> None:
        if not self.is_closed:
            self._store.delete(self.slot, client_id, field)
            self._unsealed()

    def drop(self, client_id: bytes) -> None:
        if not self.is_closed:
            self._store.drop(self.slot, client_id)

    def barrier(self, done: Callable[[bool], None]) -> None:
        if self.is_closed:
            done(False)
        else:
            self._store.barrier(self.slot, partial(self._answered, done))

    def _answered(self, done: Callable[[bool], None], durable: bool) -> None:
        """Between two turns."""
        done(durable)
        self._flush()
