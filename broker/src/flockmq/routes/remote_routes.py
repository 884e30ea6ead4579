"""Routes of other nodes and of durable sessions: the `routes` table, kept as an index of filters.

The values of the index are nodes and slots. A row is owned by an incarnation, or by `#N`: slot N, whichever core owns
that. So a slot that moves changes nothing here. Invariants: the index has a filter for a node exactly while the table
has the row and the node is a member, and for a slot while the table has the row. Rows that arrive before their node's
own row wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

from flockmq.rlog.schema import NodeInfo
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.router import Router
from flockmq.routing.targets import NodeTarget, SlotTarget

FindPeer = Callable[[str], NodeTarget | None]


SLOT_PREFIX: Final = "#"


def slot_owner(slot: int) -> str:
    """The owner of the routes of a slot's sessions. It can't be an incarnation, because these contain an @."""
    return f"{SLOT_PREFIX}{slot}"


def slot_of_owner(owner: str) -> int:
    """The slot; -1 if the owner is an incarnation."""
    return int(owner[1:]) if owner.startswith(SLOT_PREFIX) and "@" not in owner else -1


class _RouteTarget:
    """A node or slot with the number of its routes."""

    __slots__ = ("rows", "target")

    def __init__(self, target: NodeTarget | SlotTarget) -> None:
        self.target = target
        self.rows = 0


class RemoteRoutes:
    """Listens to `routes`; `members` listens to `nodes`. `find_peer` returns None for a node that isn't a member; it
    must know a node before `members` is told of it. `on_slot_delete(slot, filter)` is called for each deleted route of
    a slot. `on_swap` is called when a bootstrap replaced all routes, without calls of `on_slot_delete`."""

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
        self._targets: dict[str, _RouteTarget] = {}
        self._early_rows: dict[str, dict[bytes, None]] = {}
        self._live = False
        self.members = RouteMembers(self)

    def rename(self, me: str) -> None:
        """This node is another incarnation."""
        self._me = me

    def go_live(self) -> None:
        """From now on the router uses this index."""
        self._live = True
        self._router.replace_remote(self._index)

    def put(self, key: tuple[bytes, str], value: None, old: None) -> None:
        filter, incarnation = key
        if incarnation == self._me:
            return
        known = self._targets.get(incarnation)
        if known is None:
            target = self._find(incarnation)
            if target is None:
                self._early_rows.setdefault(incarnation, {})[filter] = None
                return
            known = self._targets[incarnation] = _RouteTarget(target)
        known.rows += 1
        self._index.add(filter, known.target)
        self._changed(filter)

    def delete(self, key: tuple[bytes, str], old: None) -> None:
        filter, incarnation = key
        known = self._targets.get(incarnation)
        if known is not None:
            self._take(filter, known)
            if known.rows == 0:
                del self._targets[incarnation]
            if self.on_slot_delete is not None and isinstance(known.target, SlotTarget):
                self.on_slot_delete(known.target.number, filter)
        elif (waiting := self._early_rows.get(incarnation)) is not None:
            waiting.pop(filter, None)
            if not waiting:
                del self._early_rows[incarnation]

    def fresh(self) -> Self:
        return type(self)(self._router, self._me, self._find_peer)

    def swap(self, fresh: Self) -> None:
        self._index, self._targets, self._early_rows = fresh._index, fresh._targets, fresh._early_rows
        self.go_live()
        for incarnation in list(self._early_rows):  # nodes that joined while the fresh one was filled
            self.joined(incarnation)
        if self.on_swap is not None:
            self.on_swap()

    def joined(self, incarnation: str) -> None:
        """The node is a member now: add its rows that arrived before."""
        if incarnation in self._early_rows and self._find_peer(incarnation) is not None:
            for filter in self._early_rows.pop(incarnation):
                self.put((filter, incarnation), None, None)

    def gone(self, incarnation: str) -> None:
        """The node was purged. Its rows disappear as the table sweeps them; until then its sender accepts and drops
        messages."""
        self._early_rows.pop(incarnation, None)

    def _find(self, owner: str) -> NodeTarget | SlotTarget | None:
        slot = slot_of_owner(owner)
        return self._find_peer(owner) if slot < 0 else SlotTarget(slot)

    def _take(self, filter: bytes, known: _RouteTarget) -> None:
        known.rows -= 1
        self._index.remove(filter, known.target)
        self._changed(filter)

    def _changed(self, filter: bytes) -> None:
        if self._live:
            self._router.changed(filter)


class RouteMembers:
    """Tells the routes which nodes are members."""

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
        """Without routes: it isn't used before it is swapped in."""
        return type(self)(None)

    def swap(self, fresh: Self) -> None:
        gone = [incarnation for incarnation in self._known if incarnation not in fresh._known]
        self._known = fresh._known
        if self._routes is not None:
            for incarnation in gone:
                self._routes.gone(incarnation)
            for incarnation in self._known:
                self._routes.joined(incarnation)
