"""Shared subscriptions in the log: how many members each node and each slot has, and the rows of this node.

A row is owned by an incarnation, or by `#N`: slot N, whichever core owns that. So a slot that moves changes nothing
here. Invariants: `RemoteSharedMembers` has the rows of other owners. A group counts as routed only while the table has
the owner's row and no delete of it is under way. Changed counts are written soon (`count_turns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Self

from flockmq.bounds import SHARED_RETRY_S
from flockmq.mqtt.topics import matching
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.schema import SHARES, SharedMembers
from flockmq.routes.count_turns import CountTurns
from flockmq.routes.own_routes import WorstReason, in_pieces
from flockmq.routes.remote_routes import slot_of_owner
from flockmq.routes.route_turns import NOBODY, Submit
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.group import MembersElsewhere
from flockmq.routing.router import Router

Reason = Callable[["asyncio.Future[StreamId]"], int]


class RemoteSharedMembers:
    """Listens to `shares`. `on_slot_row(slot, filter)` is called when a slot's row changes or is deleted, but not at a
    bootstrap, when all rows may change."""

    def __init__(self, router: Router, me: str, on_slot_row: Callable[[int, bytes], None] | None = None) -> None:
        self._router = router
        self._me = me
        self.on_slot_row = on_slot_row
        self._index = FilterIndex()
        self._elsewhere: dict[bytes, MembersElsewhere] = {}
        self._live = False

    def rename(self, me: str) -> None:
        """This node is another incarnation."""
        self._me = me

    def go_live(self) -> None:
        """From now on the router selects members by these rows."""
        self._live = True
        self._router.replace_shared(self._index, self._elsewhere)

    def put(self, key: tuple[bytes, str], value: SharedMembers, old: SharedMembers | None) -> None:
        share_filter, incarnation = key
        if incarnation == self._me:
            return
        others = self._elsewhere.get(share_filter)
        if others is None:
            others = self._elsewhere[share_filter] = MembersElsewhere(share_filter)
            self._index.add(matching(share_filter), others)
            self._changed(share_filter)
        others.nodes[incarnation] = (value.connected, value.away)
        self._counted(share_filter, incarnation)

    def delete(self, key: tuple[bytes, str], old: SharedMembers) -> None:
        share_filter, incarnation = key
        others = self._elsewhere.get(share_filter)
        if others is None or others.nodes.pop(incarnation, None) is None:
            return
        if not others.nodes:
            del self._elsewhere[share_filter]
            self._index.remove(matching(share_filter), others)
            self._changed(share_filter)
        self._counted(share_filter, incarnation)

    def count(self, share_filter: bytes, owner: str) -> tuple[int, int]:
        """What the table says of another owner: (connected, offline)."""
        others = self._elsewhere.get(share_filter)
        return (0, 0) if others is None else others.nodes.get(owner, (0, 0))

    def fresh(self) -> Self:
        return type(self)(self._router, self._me)

    def swap(self, fresh: Self) -> None:
        self._index, self._elsewhere = fresh._index, fresh._elsewhere
        self.go_live()

    def _counted(self, share_filter: bytes, owner: str) -> None:
        if self._live:
            self._router.shared.others_changed()
            if self.on_slot_row is not None and (slot := slot_of_owner(owner)) >= 0:
                self.on_slot_row(slot, share_filter)

    def _changed(self, share_filter: bytes) -> None:
        if self._live:
            self._router.changed(matching(share_filter))


class OwnSharedMembers:
    """The rows of one owner: this node, or a slot. `count` returns (connected, offline) of a group here. `reason` gives
    the reason code of a write. `turns`: of all owners of the node."""

    def __init__(
        self,
        me: str,
        submit: Submit,
        count: Callable[[bytes], tuple[int, int]],
        reason: Reason,
        turns: CountTurns,
    ) -> None:
        self._me = me
        self._submit = submit
        self._count = count
        self._reason = reason
        self._loop = asyncio.get_running_loop()
        self._routed: set[bytes] = set()
        self._written: dict[bytes, tuple[int, int] | None] = {}  # None: unknown
        self._latest: dict[bytes, int] = {}
        self._serial = 0
        self._turns = turns
        self._dirty: set[bytes] = set()
        """Filters whose counts may have to be written."""
        self._waiting: set[tuple[bytes, bytes]] = set()
        """(filter, user) that wait for their turn. The first turn of a dirty filter counts."""
        self._is_stopped = False

    def rename(self, me: str) -> None:
        """This node is another incarnation, without rows."""
        self._me = me
        self._routed.clear()
        self._written.clear()
        self._latest.clear()

    def stop(self) -> None:
        """From now on another core writes these rows."""
        self._is_stopped = True

    def has(self, share_filter: bytes) -> bool:
        return share_filter in self._routed

    def mark_unknown(self, share_filter: bytes) -> None:
        """The table may have another count, written by a former owner of these rows: write the row again."""
        self._routed.discard(share_filter)
        self._written[share_filter] = None
        self.changed(share_filter)

    def put(self, share_filters: list[bytes], done: Callable[[int], None], user: bytes = NOBODY) -> None:
        """Write the counts now, in the user's turn. `done` gets the reason code once it is known whether this node's
        table has them."""
        pieces = list(in_pieces(share_filters))
        worst = WorstReason(len(pieces), done)
        for piece in pieces:
            self._write(piece, worst.done, user)

    def changed(self, share_filter: bytes, user: bytes = NOBODY) -> None:
        """A member of this user came, left, or went offline: the count is written soon, together with other
        changes."""
        if self._is_stopped:
            return
        self._dirty.add(share_filter)
        if (share_filter, user) not in self._waiting:
            self._waiting.add((share_filter, user))
            self._turns.append(user, self, share_filter)

    def its_turn(self, share_filter: bytes, user: bytes) -> bool:
        self._waiting.discard((share_filter, user))
        if share_filter not in self._dirty or self._is_stopped:
            return False
        self._dirty.discard(share_filter)
        return self._written.get(share_filter, (0, 0)) != self._count(share_filter)

    def write_counts(self, share_filters: list[bytes], done: Callable[[int], None]) -> None:
        self.put(share_filters, done)

    def _write(self, share_filters: list[bytes], done: Callable[[int], None], user: bytes) -> None:
        self._serial += 1
        ops: list[Op] = []
        counted = {name: self._count(name) for name in share_filters}
        for name, counts in counted.items():
            if counts == (0, 0):
                ops.append(SHARES.delete((name, self._me)))
                self._routed.discard(name)
            else:
                ops.append(SHARES.put((name, self._me), SharedMembers(*counts)))
            self._written[name] = counts
            self._latest[name] = self._serial
        self._submit(ops, user).add_done_callback(partial(self._done, counted, self._serial, done))

    def _done(
        self,
        counted: dict[bytes, tuple[int, int]],
        serial: int,
        done: Callable[[int], None],
        written: asyncio.Future[StreamId],
    ) -> None:
        reason = self._reason(written)
        unknown: list[bytes] = []
        for name, counts in counted.items():
            if self._latest.get(name) != serial:
                continue  # a later write decides
            if reason >= 0x80:
                self._routed.discard(name)
                self._written[name] = None
                unknown.append(name)
            elif counts != (0, 0):
                self._routed.add(name)
            elif self._written[name] == counts:
                del self._written[name], self._latest[name]
        if unknown:
            self._loop.call_later(SHARED_RETRY_S, self._all_changed, unknown)
        done(reason)

    def _all_changed(self, share_filters: list[bytes]) -> None:
        for name in share_filters:
            self.changed(name)
