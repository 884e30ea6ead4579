"""Claims of exclusive filters: the log's table `claims`, and this node's pending claims.

A claim belongs to a clean session or to a durable one:

    (filter, incarnation)                       → client id    deleted with that incarnation
    (filter NUL client id, epoch; `#slot`)      → client id    outlives nodes, as the session does

The epoch is the position of the cluster's log at which the owner that wrote the claim got the slot. So two owners of a
slot write and delete different rows, however late. The owner with the higher epoch is the later one.

Invariants: a filter is granted to at most one client. The log's order decides: a client gets the filter if no other
client had a claim when its own claim arrived in the table. It is told when that order is certain: when Redis can't lose
the claim any more. One that Redis lost before is written again, perhaps behind another client's, and judged again when
it arrives. A claim that is refused is deleted again. One that a
SUBSCRIBE was granted isn't deleted as unused while the same SUBSCRIBE waits for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final, Self, TypeVar

from flockmq.default_callbacks import ignore
from flockmq.mqtt.reason import Reason
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import ReasonOf
from flockmq.rlog.schema import CLAIMS
from flockmq.routes.remote_routes import slot_of_owner, slot_owner
from flockmq.routes.route_turns import NOBODY, Submit
from flockmq.routing.slots import slot_of

Key = tuple[bytes, str]
Secure = Callable[[], "asyncio.Future[StreamId]"]
"""Its future gets a result when Redis can't lose any more what the table has now (`Rlog.secure`)."""
Done = Callable[[int], None]
"""Gets SUCCESS, QUOTA_EXCEEDED if another client has the filter, or the reason why the log can't decide."""

_NUL: Final = b"\0"
"""Occurs in no filter and no client id [MQTT-1.5.4-2]."""
_EPOCH_BYTES: Final = 8
K = TypeVar("K")


def durable_key(filter: bytes, client_id: bytes, epoch: int) -> Key:
    """The key of a durable session's claim, written by an owner that has had the slot since `epoch`."""
    return filter + _NUL + client_id + epoch.to_bytes(_EPOCH_BYTES, "big"), slot_owner(slot_of(client_id))


def epoch_of(key: Key) -> int:
    """The epoch in a `durable_key`."""
    return int.from_bytes(key[0][-_EPOCH_BYTES:], "big")


def filter_of(key: Key) -> bytes:
    """The filter in a key of either kind."""
    return key[0].partition(_NUL)[0]


class ExclusiveClaimTable:
    """Listens to `claims`. `on_put` is called for each claim, with its client id; `on_swap` when other tables have
    replaced this node's."""

    def __init__(self, on_put: Callable[[Key, bytes], None], on_swap: Callable[[], None]) -> None:
        self._claims: dict[bytes, dict[Key, bytes]] = {}
        self._of_slots: dict[int, dict[Key, bytes]] = {}
        self._on_put = on_put
        self._on_swap = on_swap

    def has(self, key: Key) -> bool:
        return key in self._claims.get(filter_of(key), {})

    def is_contested(self, filter: bytes, client_id: bytes) -> bool:
        """True if another client has a claim."""
        return any(other != client_id for other in self._claims.get(filter, {}).values())

    def exists_elsewhere(self, filter: bytes, client_id: bytes, owner: str) -> bool:
        """True if the client has a claim owned by another node or slot."""
        claims = self._claims.get(filter, {})
        return any(key[1] != owner and claimant == client_id for key, claimant in claims.items())

    def of_slot(self, slot: int) -> Collection[tuple[Key, bytes]]:
        """The claims of the slot's sessions, with their client ids."""
        return self._of_slots.get(slot, {}).items()

    def of_durable(self, filter: bytes, client_id: bytes) -> Iterator[Key]:
        """All claims of a durable session."""
        owner = slot_owner(slot_of(client_id))
        for key, claimant in self._claims.get(filter, {}).items():
            if claimant == client_id and key[1] == owner:
                yield key

    def put(self, key: Key, value: bytes, old: bytes | None) -> None:
        self._claims.setdefault(filter_of(key), {})[key] = value
        slot = slot_of_owner(key[1])
        if slot >= 0:
            self._of_slots.setdefault(slot, {})[key] = value
        self._on_put(key, value)

    def delete(self, key: Key, old: bytes) -> None:
        _discard(self._claims, filter_of(key), key)
        _discard(self._of_slots, slot_of_owner(key[1]), key)

    def fresh(self) -> Self:
        return type(self)(ignore, ignore)

    def swap(self, fresh: Self) -> None:
        self._claims, self._of_slots = fresh._claims, fresh._of_slots
        self._on_swap()


class _PendingClaim:
    """`is_free`: whether the filter was free when the claim arrived in the table; None: not seen. `arrivals`: how
    often that was to be judged. `is_invalid`: this node changed its incarnation meanwhile, so the claim fails whatever
    the log decides."""

    __slots__ = ("arrivals", "client_id", "ended", "filter", "is_free", "is_invalid", "is_released", "waiting")

    def __init__(self, filter: bytes, client_id: bytes, done: Done, ended: Callable[[int, bool], None]) -> None:
        self.filter = filter
        self.client_id = client_id
        self.waiting = [done]
        self.ended = ended
        self.is_free: bool | None = None
        self.arrivals = 0
        self.is_released = False
        self.is_invalid = False


class PendingClaims:
    """This node's claims that are on their way to its table. `on_put` is called for every claim that arrives there."""

    def __init__(self, submit: Submit, secure: Secure, reason: ReasonOf, on_put: Callable[[Key, bytes], None]) -> None:
        self.claims = ExclusiveClaimTable(self._claim_seen, self._swapped)
        self._on_put = on_put
        self._submit = submit
        self._secure = secure
        self._reason = reason
        self._pending: dict[Key, _PendingClaim] = {}
        self._wanted: dict[tuple[bytes, bytes], int] = {}
        """(filter, client id) → how many SUBSCRIBEs wait until all their claims are decided."""

    def __contains__(self, key: Key) -> bool:
        return key in self._pending

    def want(self, filter: bytes, client_id: bytes, more: int) -> None:
        """A SUBSCRIBE begins (1) or ends (-1) to wait until all its claims, this one among them, are decided."""
        wanted = self._wanted.get((filter, client_id), 0) + more
        if wanted:
            self._wanted[filter, client_id] = wanted
        else:
            del self._wanted[filter, client_id]

    def is_wanted(self, filter: bytes, client_id: bytes) -> bool:
        """True: don't delete the client's claim as unused. A SUBSCRIBE will use it, or release it."""
        return (filter, client_id) in self._wanted

    def join(self, key: Key, done: Done) -> bool:
        """If a claim with this key is pending, the caller gets the same answer."""
        claim = self._pending.get(key)
        if claim is not None:
            claim.waiting.append(done)
        return claim is not None

    def release(self, key: Key) -> bool:
        """The claim isn't needed any more; it is deleted once its result is known. False: no such claim is pending."""
        claim = self._pending.get(key)
        if claim is not None:
            claim.is_released = True
        return claim is not None

    def make(
        self,
        key: Key,
        filter: bytes,
        client_id: bytes,
        done: Done,
        ended: Callable[[int, bool], None],
        user: bytes = NOBODY,
    ) -> None:
        """Write a claim in the user's turn. After all waiting callers got the answer, `ended(reason, released)` is
        called. `released` is True if the filter was released meanwhile."""
        self._pending[key] = _PendingClaim(filter, client_id, done, ended)
        self._submit([CLAIMS.put(key, client_id)], user).add_done_callback(partial(self._written, key))

    def invalidate(self) -> None:
        """This node is another incarnation: refuse all pending claims, because they belong to the former one or to its
        slots."""
        for claim in self._pending.values():
            claim.is_invalid = True

    def _claim_seen(self, key: Key, client_id: bytes) -> None:
        claim = self._pending.get(key)
        if claim is not None:
            claim.is_free = not self.claims.is_contested(claim.filter, claim.client_id)
            claim.arrivals += 1
        self._on_put(key, client_id)

    def _swapped(self) -> None:
        """A bootstrap replaced the table. Redis may have lost claims, and what came before them is unknown."""
        for claim in self._pending.values():
            claim.is_free = None
            claim.arrivals += 1

    def _written(self, key: Key, written: asyncio.Future[StreamId]) -> None:
        reason = self._reason(written)
        if reason >= 0x80:
            self._end(key, reason)
        else:
            self._judge(key)

    def _judge(self, key: Key) -> None:
        """The table has, or had, the claim."""
        claim = self._pending[key]
        if claim.is_free is None:  # a bootstrap replaced the table: if another client has a claim now, it wins
            claim.is_free = not self.claims.is_contested(claim.filter, claim.client_id)
        if not claim.is_free:
            self._end(key, Reason.QUOTA_EXCEEDED)
        elif not self.claims.has(key):  # lost, and perhaps written again: its deletion comes behind that
            self._end(key, Reason.UNSPECIFIED_ERROR)
        else:
            self._secure().add_done_callback(partial(self._secured, key, claim.arrivals))

    def _secured(self, key: Key, arrivals: int, secured: asyncio.Future[StreamId]) -> None:
        reason = self._reason(secured)
        if reason < 0x80 and self._pending[key].arrivals != arrivals:
            self._judge(key)
        else:
            self._end(key, reason)

    def _end(self, key: Key, reason: int) -> None:
        claim = self._pending[key]
        if claim.is_invalid:
            reason = Reason.UNSPECIFIED_ERROR
        try:
            for done in claim.waiting:
                done(reason)
        finally:
            del self._pending[key]
            claim.ended(reason, claim.is_released)


def _discard(claims: dict[K, dict[Key, bytes]], by: K, key: Key) -> None:
    found = claims.get(by)
    if found is not None and found.pop(key, None) is not None and not found:
        del claims[by]
