"""Other nodes' routes, and those of sessions that last: the `routes` table, kept as an index of filters.

Its values are peers and slots: a row is owned by an incarnation, or by `#N`, slot N, a target whoever owns that, so
that a slot that moves changes nothing here. What always holds: the index has a filter under a peer exactly while the
table has the row and the node is a member, and under a slot while the table has the row; rows that come before their
node's own row wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

from flockmq.rlog.schema import NodeInfo
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.router import Router
from flockmq.routing.targets import NodeTarget, SlotTarget

FindPeer = Callable[[str], NodeTarget | None]


SLOT_MARK: Final = "#"


def slot_owner(slot: int) -> str:
    """The owner of the routes of a slot's sessions; no incarnation is one, for each has an @."""
    return f"{SLOT_MARK}{slot}"


def slot_of_owner(owner: str) -> int:
    """-1: an incarnation."""
    return int(owner[1:]) if owner.startswith(SLOT_MARK) and "@" not in owner else -1


class _Placed:
    """A node or slot with so many routes."""

    __slots__ = ("rows", "target")

    def __init__(self, target: NodeTarget | SlotTarget) -> None:
        self.target = target
        self.rows = 0


class RemoteRoutes:
    """Listens to `routes`; `members` listens to `nodes`. `find_peer` gives None for a node that isn't a member: it must
    know of a node before `members` hears of it. `on_slot_delete` is told of each route (slot, filter) that goes;
    `on_swap` that all of them are others, of which it isn't.
    """

    def __init__(
        self,
        router: Router,
        me: str,
        find_peer: FindPeer,
        on_slot_delete: Callable[[int, bytes], None] | None = None,
        on_swap: Callable[[], None] | None = None,
    ) -> None:
        self._router = router
        self._me = me
        self._find_peer = find_peer
        self.on_slot_delete = on_slot_delete
        self.on_swap = on_swap
        self._index = FilterIndex()
        self._placed: dict[str, _Placed] = {}
        self._unplaced: dict[str, dict[bytes, None]] = {}
        self._live = False
        self.members = RouteMembers(self)

    def rename(self, me: str) -> None:
        """This node is another incarnation."""
        self._me = me

    def nodes_with_rows(self) -> int:
        return len(self._placed) + len(self._unplaced)

    def go_live(self) -> None:
        """From now on the router matches by this index."""
        self._live = True
        self._router.replace_remote(self._index)

    def put(self, key: tuple[bytes, str], value: None, old: None) -> None:
        filter, incarnation = key
        if incarnation == self._me:
            return
        placed = self._placed.get(incarnation)
        if placed is None:
            target = self._find(incarnation)
            if target is None:
                self._unplaced.setdefault(incarnation, {})[filter] = None
                return
            placed = self._placed[incarnation] = _Placed(target)
        placed.rows += 1
        self._index.add(filter, placed.target)
        self._changed(filter)

    def delete(self, key: tuple[bytes, str], old: None) -> None:
        filter, incarnation = key
        placed = self._placed.get(incarnation)
        if placed is not None:
            self._take(filter, placed)
            if placed.rows == 0:
                del self._placed[incarnation]
            if self.on_slot_delete is not None and isinstance(placed.target, SlotTarget):
                self.on_slot_delete(placed.target.number, filter)
        elif (waiting := self._unplaced.get(incarnation)) is not None:
            waiting.pop(filter, None)
            if not waiting:
                del self._unplaced[incarnation]

    def fresh(self) -> Self:
        return type(self)(self._router, self._me, self._find_peer)

    def swap(self, fresh: Self) -> None:
        self._index, self._placed, self._unplaced = fresh._index, fresh._placed, fresh._unplaced
        self.go_live()
        for incarnation in list(self._unplaced):  # those who joined while the fresh one was filled
            self.joined(incarnation)
        if self.on_swap is not None:
            self.on_swap()

    def joined(self, incarnation: str) -> None:
        """The node is a member now: place the rows that came before."""
        if incarnation in self._unplaced and self._find_peer(incarnation) is not None:
            for filter in self._unplaced.pop(incarnation):
                self.put((filter, incarnation), None, None)

    def gone(self, incarnation: str) -> None:
        """The node was purged. Its rows go as the table sweeps them; until then its peer takes and forgets."""
        self._unplaced.pop(incarnation, None)

    def _find(self, owner: str) -> NodeTarget | SlotTarget | None:
        slot = slot_of_owner(owner)
        return self._find_peer(owner) if slot < 0 else SlotTarget(slot)

    def _take(self, filter: bytes, placed: _Placed) -> None:
        placed.rows -= 1
        self._index.remove(filter, placed.target)
        self._changed(filter)

    def _changed(self, filter: bytes) -> None:
        if self._live:
            self._router.changed(filter)


class RouteMembers:
    """Tells the routes which nodes there are."""

    def __init__(self, routes: RemoteRoutes | None) -> None:
        self._routes = routes
        self._known: dict[str, None] = {}

    def put(self, key: str, value: NodeInfo, old: NodeInfo | None) -> None:
        self._known[key] = None
        if self._routes is not None:
            self._routes.joined(key)

    def delete(self, key: str, old: NodeInfo) -> None:
        self._known.pop(key, None)
        if self._routes is not None:
            self._routes.gone(key)

    def fresh(self) -> Self:
        """Nobody reads it before it is swapped in."""
        return type(self)(None)

    def swap(self, fresh: Self) -> None:
        gone = [incarnation for incarnation in self._known if incarnation not in fresh._known]
        self._known = fresh._known
        if self._routes is not None:
            for incarnation in gone:
                self._routes.gone(incarnation)
            for incarnation in self._known:
                self._routes.joined(incarnation)
