"""Exclusive subscriptions of the durable sessions that run at this core.

Their claims are owned by slots, so they outlive nodes: the next owner of a slot gets them with its sessions, and writes
no new ones. Invariants, for a slot that this core owns:

- A client whose session has an exclusive filter has a claim, written by this owner or by an earlier one.
- The claims of a session that can't be read are kept: an owner that can read it may come.
- A claim is deleted only after it is committed that no session uses it, and never a claim of a later owner. So a former
  owner that doesn't know yet that it lost the slot takes nothing from sessions that run elsewhere.
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
from flockmq.routes.exclusive_claim_table import Done, Key, PendingClaims, durable_key, epoch_of, filter_of
from flockmq.routes.route_turns import NOBODY, Submit
from flockmq.routing.slots import slot_of


class ClaimSessions(Protocol):
    """The durable sessions that run here."""

    def has_exclusively(self, client_id: bytes, filter: bytes) -> bool:
        """True if the client's session here has `$exclusive/FILTER`."""
        ...

    def is_unread(self, client_id: bytes) -> bool:
        """True if the client has a session here that can't be read. Nobody knows its filters."""
        ...

    def gained_at(self, slot: int) -> int:
        """The epoch at which this core became the slot's owner; -1: it isn't the owner."""
        ...

    def loaded(self) -> Iterable[int]:
        """The slots that run here with all their sessions loaded."""
        ...

    def has_loaded(self, slot: int) -> bool: ...

    def settle(self, slot: int, then: Callable[[], None]) -> None:
        """Call `then` when all changes of the slot so far are committed. It is never called if another core owns the
        slot by then."""
        ...


class DurableExclusiveClaims:
    """`pending` are the node's pending claims. `reason` gives the reason code of a write."""

    def __init__(self, pending: PendingClaims, submit: Submit, reason: ReasonOf, sessions: ClaimSessions) -> None:
        self._pending = pending
        self._claims = pending.claims
        self._submit = submit
        self._reason = reason
        self._sessions = sessions

    def __len__(self) -> int:
        return sum(len(self._claims.of_slot(slot)) for slot in self._sessions.loaded())

    def claimants(self) -> list[bytes]:
        """The clients with claims in slots that run here."""
        claims = (claim for slot in self._sessions.loaded() for claim in self._claims.of_slot(slot))
        return list(dict.fromkeys(client_id for _, client_id in claims))

    def exists(self, filter: bytes, client_id: bytes) -> bool:
        """True if this node's table has a claim of the client."""
        return any(self._claims.of_durable(filter, client_id))

    def claim(self, filter: bytes, client_id: bytes, done: Done, user: bytes = NOBODY) -> None:
        epoch = self._sessions.gained_at(slot_of(client_id))
        if epoch < 0:  # the session runs elsewhere now, where the request is sent again
            done(Reason.UNSPECIFIED_ERROR)
            return
        key = durable_key(filter, client_id, epoch)
        if self._pending.join(key, done):
            return
        if self._sessions.has_exclusively(client_id, filter):
            done(Reason.SUCCESS)
        elif self._claims.is_contested(filter, client_id):
            done(Reason.QUOTA_EXCEEDED)
        else:
            self._pending.make(key, filter, client_id, done, partial(self._claimed, key, client_id), user)

    def keep(self, filter: bytes, client_id: bytes, done: Done) -> None:
        """The session has the filter: write a claim if there is none. `done` gets the result of that write."""
        epoch = self._sessions.gained_at(slot_of(client_id))
        if epoch >= 0 and not self.exists(filter, client_id):
            self._write([CLAIMS.put(durable_key(filter, client_id, epoch), client_id)], done)

    def release(self, filter: bytes, client_id: bytes) -> None:
        """A client unsubscribed, or its session ended, and that is committed."""
        epoch = self._sessions.gained_at(slot_of(client_id))
        if epoch < 0 or self._is_used(filter, client_id):
            return
        own = durable_key(filter, client_id, epoch)
        if not self._pending.release(own):
            earlier = [key for key in self._claims.of_durable(filter, client_id) if epoch_of(key) < epoch]
            self._delete([*earlier, own])

    async def look(self) -> None:
        """Delete claims that no session uses: an earlier owner wrote them late, or crashed before it deleted them."""
        count = 0
        for slot in list(self._sessions.loaded()):
            for key, client_id in list(self._claims.of_slot(slot)):
                if key not in self._pending and not self._is_used(filter_of(key), client_id):
                    self._sessions.settle(slot, partial(self._delete_unused, slot, key, client_id))
                count += 1
                if count % REJOIN_SLICE_FILTERS == 0:
                    await asyncio.sleep(0)

    def _delete_unused(self, slot: int, key: Key, client_id: bytes) -> None:
        is_ours = self._sessions.has_loaded(slot) and epoch_of(key) <= self._sessions.gained_at(slot)
        if is_ours and key not in self._pending and not self._is_used(filter_of(key), client_id):
            self._delete([key])

    def _is_used(self, filter: bytes, client_id: bytes) -> bool:
        """True if the session has the filter, or may have it, or a SUBSCRIBE of it waits for others."""
        if self._sessions.has_exclusively(client_id, filter) or self._sessions.is_unread(client_id):
            return True
        return self._pending.is_wanted(filter, client_id)

    def _claimed(self, key: Key, client_id: bytes, reason: int, is_released: bool) -> None:
        if reason >= 0x80:
            self._delete([key])
        elif is_released:
            self.release(filter_of(key), client_id)

    def _delete(self, keys: Sequence[Key]) -> None:
        """If the log doesn't accept a delete, `look` finds the claim again."""
        self._write([CLAIMS.delete(key) for key in keys], _looked_for)

    def _write(self, ops: Sequence[Op], done: Done) -> None:
        self._submit(ops).add_done_callback(lambda written: done(self._reason(written)))


def _looked_for(reason: int) -> None:
    """Nobody waits for a delete."""
