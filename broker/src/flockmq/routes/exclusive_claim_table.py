"""Claims of exclusive filters, as the log has them (table `claims`), and those on their way there.

A claim stands for a session that ends with its connection, or for one that lasts:

    (filter, incarnation)                       → client id    goes with that incarnation
    (filter NUL client id, epoch; `#slot`)      → client id    outlives nodes, as the session does

The epoch is the place in the cluster's log at which the owner that wrote the claim got the slot. So two owners of a
slot write and delete different rows, however late, and the owner with the higher epoch is the later one.

What always holds: of all clients one at most is granted a filter. The log's order decides: who bids for a filter has it
if no other client had a claim when the bid came to the table; whoever is refused takes the bid back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, Self, TypeVar

from flockmq.mqtt.reason import Reason
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.rlog import ReasonOf
from flockmq.rlog.schema import CLAIMS
from flockmq.routes.remote_routes import slot_of_owner, slot_owner
from flockmq.routing.slots import slot_of

Key = tuple[bytes, str]
Submit = Callable[[Sequence[Op]], "asyncio.Future[StreamId]"]
Done = Callable[[int], None]
"""Gets SUCCESS, QUOTA_EXCEEDED if another client has the filter, or why the log can't say."""

_NUL: Final = b"\0"
"""In no filter and no client id [MQTT-1.5.4-2]."""
_EPOCH_BYTES: Final = 8
K = TypeVar("K")


def lasting_key(filter: bytes, client_id: bytes, epoch: int) -> Key:
    """Of a claim of a session that lasts, by an owner that has had its slot since then."""
    return filter + _NUL + client_id + epoch.to_bytes(_EPOCH_BYTES, "big"), slot_owner(slot_of(client_id))


def epoch_of(key: Key) -> int:
    """Of a `lasting_key`."""
    return int.from_bytes(key[0][-_EPOCH_BYTES:], "big")


def filter_of(key: Key) -> bytes:
    """Of either kind."""
    return key[0].partition(_NUL)[0]


class Claims:
    """Listens to `claims`; `on_put` hears of each, with its client id."""

    def __init__(self, on_put: Callable[[Key, bytes], None]) -> None:
        self._claims: dict[bytes, dict[Key, bytes]] = {}
        self._of_slots: dict[int, dict[Key, bytes]] = {}
        self._on_put = on_put

    def is_contested(self, filter: bytes, client_id: bytes) -> bool:
        """Another client has a claim."""
        return any(other != client_id for other in self._claims.get(filter, {}).values())

    def stands_elsewhere(self, filter: bytes, client_id: bytes, owner: str) -> bool:
        """The client has a claim of another owner."""
        claims = self._claims.get(filter, {})
        return any(key[1] != owner and claimant == client_id for key, claimant in claims.items())

    def of_slot(self, slot: int) -> Collection[tuple[Key, bytes]]:
        """The claims of its sessions, with their client ids."""
        return self._of_slots.get(slot, {}).items()

    def of_lasting(self, filter: bytes, client_id: bytes) -> Iterator[Key]:
        """All claims of a session that lasts."""
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
        return type(self)(_unheard)

    def swap(self, fresh: Self) -> None:
        self._claims, self._of_slots = fresh._claims, fresh._of_slots


class _Bid:
    """`is_free`: whether the filter was free when the bid came to the table; None: nobody saw it. `is_void`: it will
    have been made for nothing.
    """

    __slots__ = ("client_id", "ended", "filter", "is_free", "is_released", "is_void", "waiting")

    def __init__(self, filter: bytes, client_id: bytes, done: Done, ended: Callable[[int, bool], None]) -> None:
        self.filter = filter
        self.client_id = client_id
        self.waiting = [done]
        self.ended = ended
        self.is_free: bool | None = None
        self.is_released = False
        self.is_void = False


class Bids:
    """Claims of this node that are on their way to its table. `on_put` hears of every claim that comes there."""

    def __init__(self, submit: Submit, reason: ReasonOf, on_put: Callable[[Key, bytes], None]) -> None:
        self.claims = Claims(self._heard)
        self._on_put = on_put
        self._submit = submit
        self._reason = reason
        self._bids: dict[Key, _Bid] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._bids

    def join(self, key: Key, done: Done) -> bool:
        """The client asks again while its bid is on its way: it gets the same answer."""
        bid = self._bids.get(key)
        if bid is not None:
            bid.waiting.append(done)
        return bid is not None

    def release(self, key: Key) -> bool:
        """It isn't wanted any more, which is decided when it is through; False: no such bid is on its way."""
        bid = self._bids.get(key)
        if bid is not None:
            bid.is_released = True
        return bid is not None

    def make(self, key: Key, filter: bytes, client_id: bytes, done: Done, ended: Callable[[int, bool], None]) -> None:
        """`ended` is called behind all who wait for the bid, with their answer and whether one of them, or anybody
        meanwhile, had no use for it.
        """
        self._bids[key] = _Bid(filter, client_id, done, ended)
        self._submit([CLAIMS.put(key, client_id)]).add_done_callback(partial(self._written, key))

    def void(self) -> None:
        """This node is another incarnation: what goes with the former one, or is of its slots, is granted to nobody."""
        for bid in self._bids.values():
            bid.is_void = True

    def _heard(self, key: Key, client_id: bytes) -> None:
        bid = self._bids.get(key)
        if bid is not None:
            bid.is_free = not self.claims.is_contested(bid.filter, bid.client_id)
        self._on_put(key, client_id)

    def _written(self, key: Key, written: asyncio.Future[StreamId]) -> None:
        bid = self._bids[key]
        reason = self._reason(written)
        if bid.is_void:
            reason = Reason.UNSPECIFIED_ERROR
        elif reason < 0x80:
            if bid.is_free is None:  # the table was replaced as a whole meanwhile: in doubt, the other has it
                bid.is_free = not self.claims.is_contested(bid.filter, bid.client_id)
            reason = Reason.SUCCESS if bid.is_free else Reason.QUOTA_EXCEEDED
        try:
            for done in bid.waiting:
                done(reason)
        finally:
            del self._bids[key]
            bid.ended(reason, bid.is_released)


def _unheard(key: Key, client_id: bytes) -> None:
    """Nobody waits for a table that is being filled."""


def _discard(claims: dict[K, dict[Key, bytes]], by: K, key: Key) -> None:
    found = claims.get(by)
    if found is not None and found.pop(key, None) is not None and not found:
        del claims[by]
