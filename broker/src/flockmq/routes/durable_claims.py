"""Exclusive subscriptions of the sessions that last and run at this home. Only cores have one.

Their claims are owned by slot, so they outlive nodes: the next home of a slot finds them with its sessions, and writes
none anew. What always holds, of a slot that runs here:
- Whose session has an exclusive filter has a claim, of this home or of an earlier one.
- A claim is deleted only when it is durable that no session uses it, and never one of a later home of the slot. So a
  home that was deposed, and doesn't know it yet, takes nothing from sessions that go on elsewhere.
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
from flockmq.rlog.shards import CLAIMS
from flockmq.routes.claims import Bids, Done, Key, Submit, epoch_of, filter_of, lasting_key
from flockmq.routing.slots import slot_of


class ClaimSessions(Protocol):
    """The sessions that run here."""

    def has_exclusively(self, client_id: bytes, filter: bytes) -> bool:
        """One of them has `$exclusive/FILTER`."""
        ...

    def gained_at(self, slot: int) -> int:
        """The epoch since which the slot is this home's; -1: it isn't."""
        ...

    def loaded(self) -> Iterable[int]:
        """The slots that run here, with all their sessions."""
        ...

    def has_loaded(self, slot: int) -> bool: ...

    def settle(self, slot: int, then: Callable[[], None]) -> None:
        """Call `then` when all that was put for the slot is durable; never, if another home has it by then."""
        ...


class DurableClaims:
    """`bids` are the node's; `reason` says what a write came to."""

    def __init__(self, bids: Bids, submit: Submit, reason: ReasonOf, home: ClaimSessions) -> None:
        self._bids = bids
        self._claims = bids.claims
        self._submit = submit
        self._reason = reason
        self._home = home

    def __len__(self) -> int:
        return sum(len(self._claims.of_slot(slot)) for slot in self._home.loaded())

    def claimants(self) -> list[bytes]:
        """Clients that have claims of slots that run here."""
        return list({client_id: None for slot in self._home.loaded() for _, client_id in self._claims.of_slot(slot)})

    def stands(self, filter: bytes, client_id: bytes) -> bool:
        """In this node's table."""
        return any(self._claims.of_lasting(filter, client_id))

    def claim(self, filter: bytes, client_id: bytes, done: Done) -> None:
        epoch = self._home.gained_at(slot_of(client_id))
        if epoch < 0:  # the session goes on elsewhere, and is asked again there
            done(Reason.UNSPECIFIED_ERROR)
            return
        key = lasting_key(filter, client_id, epoch)
        if self._bids.join(key, done):
            return
        if self._home.has_exclusively(client_id, filter):
            done(Reason.SUCCESS)
        elif self._claims.is_contested(filter, client_id):
            done(Reason.QUOTA_EXCEEDED)
        else:
            self._bids.make(key, filter, client_id, done, partial(self._claimed, key, client_id))

    def keep(self, filter: bytes, client_id: bytes, done: Done) -> None:
        """The session has the filter: see that it has a claim. `done` gets what became of one that was written."""
        epoch = self._home.gained_at(slot_of(client_id))
        if epoch >= 0 and not self.stands(filter, client_id):
            self._write([CLAIMS.put(lasting_key(filter, client_id, epoch), client_id)], done)

    def release(self, filter: bytes, client_id: bytes) -> None:
        """A client gave it back, or its session ended, and that is durable."""
        epoch = self._home.gained_at(slot_of(client_id))
        if epoch < 0 or self._home.has_exclusively(client_id, filter):
            return
        own = lasting_key(filter, client_id, epoch)
        if not self._bids.release(own):
            earlier = [key for key in self._claims.of_lasting(filter, client_id) if epoch_of(key) < epoch]
            self._delete([*earlier, own])

    async def look(self) -> None:
        """Delete what no session uses: written late by an earlier home, or left by it when it crashed."""
        count = 0
        for slot in list(self._home.loaded()):
            for key, client_id in list(self._claims.of_slot(slot)):
                if key not in self._bids and not self._home.has_exclusively(client_id, filter_of(key)):
                    self._home.settle(slot, partial(self._delete_stray, slot, key, client_id))
                count += 1
                if count % REJOIN_SLICE_FILTERS == 0:
                    await asyncio.sleep(0)

    def _delete_stray(self, slot: int, key: Key, client_id: bytes) -> None:
        is_ours = self._home.has_loaded(slot) and epoch_of(key) <= self._home.gained_at(slot)
        if is_ours and key not in self._bids and not self._home.has_exclusively(client_id, filter_of(key)):
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
