"""Exclusive subscriptions, `$exclusive/filter`: one client in the whole cluster may have the filter.

A node that wants a filter for a client writes a claim. The log's order decides: whoever's claim comes when no other
client has one gets the filter, everybody else takes the claim back. Each node finds that out by itself, when the claim
comes to its own table; a purge of the node takes the claim away.

What always holds: of all clients one at most was granted a filter and hasn't given it back; the same client may have
it on two nodes, while its session moves. What no session here uses is given back, whyever nobody said so: that is seen
at two looks in a row, so that a session which moved has claimed it at its new home before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

from flockmq.bounds import REJOIN_SLICE_FILTERS
from flockmq.mqtt.reason import Reason
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.shards import CLAIMS

Submit = Callable[[Sequence[Op]], "asyncio.Future[StreamId]"]
InUse = Callable[[bytes, bytes], bool]
"""The client (its id) has a session here that has the filter alone."""


class Claims:
    """Listens to `claims`: filter → (incarnation → client id)."""

    def __init__(self, on_put: Callable[[bytes, str], None]) -> None:
        self._claims: dict[bytes, dict[str, bytes]] = {}
        self._on_put = on_put

    def is_contested(self, filter: bytes, client_id: bytes) -> bool:
        """Another client has a claim."""
        return any(other != client_id for other in self._claims.get(filter, {}).values())

    def put(self, key: tuple[bytes, str], value: bytes, old: bytes | None) -> None:
        filter, incarnation = key
        self._claims.setdefault(filter, {})[incarnation] = value
        self._on_put(filter, incarnation)

    def delete(self, key: tuple[bytes, str], old: bytes) -> None:
        filter, incarnation = key
        claims = self._claims.get(filter)
        if claims is not None and claims.pop(incarnation, None) is not None and not claims:
            del self._claims[filter]

    def fresh(self) -> Self:
        return type(self)(_unheard)

    def swap(self, fresh: Self) -> None:
        self._claims = fresh._claims


class Exclusive:
    """This node's claims. `reason` says what a write came to."""

    def __init__(
        self, me: str, submit: Submit, reason: Callable[[asyncio.Future[StreamId]], int], in_use: InUse
    ) -> None:
        self.claims = Claims(self._heard)
        self._me = me
        self._submit = submit
        self._reason = reason
        self._in_use = in_use
        self._own: dict[bytes, bytes] = {}
        self._asked: dict[bytes, bool | None] = {}
        """Claims on their way: whether the filter was free when they came to the table; None: nobody saw it."""
        self._in_doubt: dict[bytes, None] = {}
        self._unused: set[bytes] = set()
        """At the latest look."""

    def __len__(self) -> int:
        return len(self._own)

    def rename(self, me: str) -> list[tuple[bytes, bytes]]:
        """This node is another incarnation, without claims: what (filter, client id) must be claimed again."""
        self._me = me
        self._in_doubt.clear()
        held = [(filter, client_id) for filter, client_id in self._own.items() if filter not in self._asked]
        for filter, _ in held:
            del self._own[filter]
        return held

    def claim(self, filter: bytes, client_id: bytes, done: Callable[[int], None]) -> None:
        """`done` gets SUCCESS, QUOTA_EXCEEDED if another client has the filter, or why the log can't say."""
        owner = self._own.get(filter)
        if owner == client_id and filter not in self._asked:
            done(Reason.SUCCESS)
        elif owner is not None or filter in self._asked or self.claims.is_contested(filter, client_id):
            done(Reason.QUOTA_EXCEEDED)
        else:
            self._own[filter] = client_id
            self._asked[filter] = None
            written = self._submit([CLAIMS.put((filter, self._me), client_id)])
            written.add_done_callback(partial(self._claimed, filter, client_id, done))

    def release(self, filter: bytes) -> None:
        """A client gave it back, or its session ended; another one may have the filter by now."""
        client_id = self._own.get(filter)
        if client_id is not None and not self._in_use(client_id, filter):
            self._give_back(filter)

    async def look(self) -> None:
        """Give back what nobody here uses."""
        unused: list[bytes] = []
        for count, (filter, client_id) in enumerate(list(self._own.items()), start=1):
            if filter not in self._asked and not self._in_use(client_id, filter):
                unused.append(filter)
            if count % REJOIN_SLICE_FILTERS == 0:
                await asyncio.sleep(0)
        known = [filter for filter in unused if filter in self._unused]
        self._unused = set(unused).difference(known)
        for filter in known:
            self.release(filter)

    def release_again(self) -> None:
        """What may still stand in the log though nobody has it."""
        for filter in [filter for filter in self._in_doubt if filter not in self._own]:
            self._delete(filter)

    def _heard(self, filter: bytes, incarnation: str) -> None:
        client_id = self._own.get(filter)
        if incarnation == self._me and filter in self._asked and client_id is not None:
            self._asked[filter] = not self.claims.is_contested(filter, client_id)

    def _claimed(
        self, filter: bytes, client_id: bytes, done: Callable[[int], None], written: asyncio.Future[StreamId]
    ) -> None:
        free = self._asked.pop(filter)
        reason = self._reason(written)
        if reason < 0x80:
            if free is None:  # the table was replaced as a whole meanwhile: in doubt, the other has it
                free = not self.claims.is_contested(filter, client_id)
            reason = Reason.SUCCESS if free and filter in self._own else Reason.QUOTA_EXCEEDED
        if reason >= 0x80:
            self._give_back(filter)
        done(reason)

    def _give_back(self, filter: bytes) -> None:
        if self._own.pop(filter, None) is not None:
            self._delete(filter)

    def _delete(self, filter: bytes) -> None:
        self._submit([CLAIMS.delete((filter, self._me))]).add_done_callback(partial(self._deleted, filter))

    def _deleted(self, filter: bytes, written: asyncio.Future[StreamId]) -> None:
        if self._reason(written) >= 0x80:
            self._in_doubt[filter] = None
        else:
            self._in_doubt.pop(filter, None)


def _unheard(filter: bytes, incarnation: str) -> None:
    """Nobody waits for a table that is being filled."""
