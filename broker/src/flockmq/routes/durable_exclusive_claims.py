"""Exclusive subscriptions of the sessions that last and run at this core.

Their claims are owned by slot, so they outlive nodes: the next owner of a slot finds them with its sessions, and writes
none anew. What always holds, of a slot that this core owns:
- A client whose session has an exclusive filter has a claim, by this owner or an earlier one.
- A claim is deleted only when it is committed that no session uses it, and never one of a later owner. So an owner that
  was deposed, and doesn't know it yet, takes nothing from sessions that go on elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from flockmq.bounds import REJOIN_SLICE_FILTERS
from flockmq.mqtt.reason import Reason
from flockmq.rlog.entry import Op
from flockmq.rlog.rlog import ReasonOf
from flockmq.rlog.schema import CLAIMS
from flockmq.routes.exclusive_claim_table import Bids, Done, Key, Submit, epoch_of, filter_of, lasting_key
from flockmq.routing.slots import slot_of


class ClaimSessions(Protocol):
    """The sessions that run here."""

    def has_exclusively(self, client_id: bytes, filter: bytes) -> bool:
        """One of them has `$exclusive/FILTER`."""
        ...

    def gained_at(self, slot: int) -> int:
        """The epoch at which this core became the slot's owner; -1: it isn't."""
        ...

    def loaded(self) -> Iterable[int]:
        """The slots that run here, with all their sessions."""
        ...

    def has_loaded(self, slot: int) -> bool: ...

    def settle(self, slot: int, then: Callable[[], None]) -> None:
        """Call `then` when all that was put for the slot is committed; never, if another core owns it by then."""
        ...


class DurableClaims:
    """`bids` are the node's; `reason` says what a write came to."""

    def __init__(self, bids: Bids, submit: Submit, reason: ReasonOf, sessions: ClaimSessions) -> None:
        self._bids = bids
        self._claims = bids.claims
        self._submit = submit
        self._reason = reason
        self._sessions = sessions

    def __len__(self) -> int:
        return sum(len(self._claims.of_slot(slot)) for slot in self._sessions.loaded())

    def claimants(self) -> list[bytes]:
        """Clients that have claims of slots that run here."""
        claims = (claim for slot in self._sessions.loaded() for claim in self._claims.of_slot(slot))
        return list(dict.fromkeys(client_id for _, client_id in claims))

    def stands(self, filter: bytes, client_id: bytes) -> bool:
        """In this node's table."""
        return any(self._claims.of_lasting(filter, client_id))

    def claim(self, filter: bytes, client_id: bytes, done: Done) -> None:
        epoch = self._sessions.gained_at(slot_of(client_id))
        if epoch < 0:  # the session goes on elsewhere, and is asked again there
            done(Reason.UNSPECIFIED_ERROR)
            return
        key = lasting_key(filter, client_id, epoch)
        if self._bids.join(key, done):
            return
        if self._sessions.has_exclusively(client_id, filter):
            done(Reason.SUCCESS)
        elif self._claims.is_contested(filter, client_id):
            done(Reason.QUOTA_EXCEEDED)
        else:
            self._bids.make(key, filter, client_id, done, partial(self._claimed, key, client_id))

    def keep(self, filter: bytes, client_id: bytes, done: Done) -> None:
        """The session has the filter: see that it has a claim. `done` gets what became of one that was written."""
        epoch = self._sessions.gained_at(slot_of(client_id))
        if epoch >= 0 and not self.stands(filter, client_id):
            self._write([CLAIMS.put(lasting_key(filter, client_id, epoch), client_id)], done)

    def release(self, filter: bytes, client_id: bytes) -> None:
        """A client gave it back, or its session ended, and that is committed."""
        epoch = self._sessions.gained_at(slot_of(client_id))
        if epoch < 0 or self._sessions.has_exclusively(client_id, filter):
            return
        own = lasting_key(filter, client_id, epoch)
        if not self._bids.release(own):
            earlier = [key for key in self._claims.of_lasting(filter, client_id) if epoch_of(key) < epoch]
            self._delete([*earlier, own])

    async def look(self) -> None:
        """Delete what no session uses: written late by an earlier owner, or left by it when it crashed."""
        count = 0
        for slot in list(self._sessions.loaded()):
            for key, client_id in list(self._claims.of_slot(slot)):
                if key not in self._bids and not self._sessions.has_exclusively(client_id, filter_of(key)):
                    self._sessions.settle(slot, partial(self._delete_stray, slot, key, client_id))
                count += 1
                if count % REJOIN_SLICE_FILTERS == 0:
                    await asyncio.sleep(0)

    def _delete_stray(self, slot: int, key: Key, client_id: bytes) -> None:
        is_ours = self._sessions.has_loaded(slot) and epoch_of(key) <= self._sessions.gained_at(slot)
        if is_ours and key not in self._bids and not self._sessions.has_exclusively(client_id, filter_of(key)):
            self._delete([key])

    def _claimed(self, key: Key, client_id: bytes, reason: int, is_released: bool) -> None:
        if reason >= 0x80:
            self._delete([key])
        elif is_released:
            self.release(filter_of(key), client_id)

    def _delete(self, keys: Sequence[Key]) -> None:
        """What the log doesn't take is found by a look."""
        self._write([CLAIMS.delete(key) for key in keys], _looked_for)

    def _write(self, ops: Sequence[Op], done: Done) -> None:
        self._submit(ops).add_done_callback(lambda written: done(self._reason(written)))


def _looked_for(reason: int) -> None:
    """Nobody waits for a delete."""
