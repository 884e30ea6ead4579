"""Exclusive subscriptions, `$exclusive/filter`, of this node's clean sessions.

The node's claims are deleted when it is purged. Durable sessions have claims of their own (`durable_exclusive_claims`);
while a node of version 1 is a member, their owners use claims of this kind for them, too.

Invariants: at most one client of this node has a claim of a filter here; the same client may have one on two nodes. A
claim that no session here uses is deleted, even if nobody released it. After the session moved, the claim is
deleted as soon as the new owner has one. Otherwise it is deleted after two checks in a row found it unused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from flockmq.bounds import REJOIN_SLICE_FILTERS
from flockmq.mqtt.reason import Reason
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import ReasonOf
from flockmq.rlog.schema import CLAIMS
from flockmq.routes.exclusive_claim_table import Done, Key, PendingClaims, Secure, filter_of
from flockmq.routes.route_turns import NOBODY, Submit

InUse = Callable[[bytes, bytes], bool]
"""True if the client (its id) has a session here that has the filter by a claim of this node."""
IsHere = Callable[[bytes], bool]
"""True if the client (its id) has a session here, or this core owns the slot of its durable session."""


class ExclusiveClaims:
    """This node's claims. `reason` gives the reason code of a write."""

    def __init__(
        self, me: str, submit: Submit, secure: Secure, reason: ReasonOf, in_use: InUse, is_here: IsHere
    ) -> None:
        self.pending = PendingClaims(submit, secure, reason, self._claim_seen)
        self.claims = self.pending.claims
        self._me = me
        self._submit = submit
        self._reason = reason
        self._in_use = in_use
        self._is_here = is_here
        self._own: dict[bytes, bytes] = {}
        """Filter → client id, of granted and of pending claims."""
        self._in_doubt: dict[bytes, None] = {}
        self._unused: set[bytes] = set()
        """Filters that were unused at the latest check."""

    def __len__(self) -> int:
        return len(self._own)

    def held(self) -> list[tuple[bytes, bytes]]:
        """(filter, client id) of granted claims."""
        return [(filter, client_id) for filter, client_id in self._own.items() if not self._is_asked(filter)]

    def rename(self, me: str) -> list[tuple[bytes, bytes]]:
        """This node is another incarnation, without claims. Return the (filter, client id) that must be claimed
        again."""
        held = self.held()
        self._me = me
        self._own.clear()
        self._in_doubt.clear()
        self.pending.invalidate()
        return held

    def claim(self, filter: bytes, client_id: bytes, done: Done, user: bytes = NOBODY) -> None:
        owner, key = self._own.get(filter), (filter, self._me)
        if owner == client_id:
            if not self.pending.join(key, done):
                done(Reason.SUCCESS)
        elif owner is not None or self.claims.is_contested(filter, client_id):
            done(Reason.QUOTA_EXCEEDED)
        else:
            self._own[filter] = client_id
            self.pending.make(key, filter, client_id, done, partial(self._claimed, key), user)

    def release(self, filter: bytes) -> None:
        """A client unsubscribed, or its session ended. Another client may have the filter by now."""
        client_id = self._own.get(filter)
        if client_id is not None and not (self._in_use(client_id, filter) or self.pending.is_wanted(filter, client_id)):
            self._delete_claim(filter)

    async def look(self) -> None:
        """Delete claims that no session here uses."""
        unused: list[bytes] = []
        for count, (filter, client_id) in enumerate(self.held(), start=1):
            if not self._in_use(client_id, filter):
                unused.append(filter)
            if count % REJOIN_SLICE_FILTERS == 0:
                await asyncio.sleep(0)
        known = [filter for filter in unused if filter in self._unused]
        self._unused = set(unused).difference(known)
        for filter in known:
            self.release(filter)

    def release_again(self) -> None:
        """Delete rows again whose deletion may have failed."""
        for filter in [filter for filter in self._in_doubt if filter not in self._own]:
            self._delete(filter)

    def _is_asked(self, filter: bytes) -> bool:
        return (filter, self._me) in self.pending

    def _claim_seen(self, key: Key, client_id: bytes) -> None:
        """Called for each claim of any node, while the log entry with the claim is being applied."""
        filter, owner = filter_of(key), key[1]
        if owner != self._me and self._own.get(filter) == client_id:
            asyncio.get_running_loop().call_soon(self._release_if_moved, filter, client_id)

    def _release_if_moved(self, filter: bytes, client_id: bytes) -> None:
        """If the client's session moved to the node that now has a claim for it, delete the claim here."""
        exists = self.claims.exists_elsewhere(filter, client_id, self._me)
        is_ours = self._own.get(filter) == client_id and not self._is_asked(filter)
        if is_ours and exists and not self._is_here(client_id):
            self._delete_claim(filter)

    def _claimed(self, key: Key, reason: int, is_released: bool) -> None:
        filter, me = key
        if me != self._me:
            return  # the claim is deleted with the former incarnation
        if reason >= 0x80:
            self._delete_claim(filter)
        elif is_released:
            self.release(filter)

    def _delete_claim(self, filter: bytes) -> None:
        if not self.pending.release((filter, self._me)) and self._own.pop(filter, None) is not None:
            self._delete(filter)

    def _delete(self, filter: bytes) -> None:
        self._submit([CLAIMS.delete((filter, self._me))]).add_done_callback(partial(self._deleted, filter))

    def _deleted(self, filter: bytes, written: asyncio.Future[StreamId]) -> None:
        if self._reason(written) >= 0x80:
            self._in_doubt[filter] = None
        else:
            self._in_doubt.pop(filter, None)
