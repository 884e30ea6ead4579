"""Other nodes' routes: the `routes` table, kept as an index of filters whose values are peers.

What always holds: the index has a filter under a peer exactly while the table has the row and the node is a member;
rows that come before their node's own row wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

from flockmq.bounds import REMOTE_SHAPES_MAX
from flockmq.rlog.shards import NodeInfo
from flockmq.routing.matcher import FilterIndex
from flockmq.session.router import Router
from flockmq.session.sink import Peer

FindPeer = Callable[[str], Peer | None]


class RemoteRoutes:
    """Listens to `routes`; `members` listens to `nodes`. `find_peer` gives None for a node that isn't a member."""

    def __init__(self, router: Router, me: str, find_peer: FindPeer) -> None:
        self._router = router
        self._me: Final = me
        self._find_peer = find_peer
        self._index = FilterIndex(REMOTE_SHAPES_MAX)
        self._peers: dict[str, Peer] = {}
        self._unplaced: dict[str, set[bytes]] = {}
        self._live = False
        self.members = Members(self)

    def go_live(self) -> None:
        """From now on the router matches by this index."""
        self._live = True
        self._router.replace_remote(self._index)

    def put(self, key: tuple[bytes, str], value: None, old: None) -> None:
        filter, incarnation = key
        if incarnation == self._me:
            return
        peer = self._peers.get(incarnation) or self._find_peer(incarnation)
        if peer is None:
            self._unplaced.setdefault(incarnation, set()).add(filter)
            return
        self._peers[incarnation] = peer
        self._add(filter, peer)

    def delete(self, key: tuple[bytes, str], old: None) -> None:
        filter, incarnation = key
        peer = self._peers.get(incarnation)
        if peer is not None:
            self._index.remove(filter, peer)
            if self._live:
                self._router.changed(filter)
        elif (waiting := self._unplaced.get(incarnation)) is not None:
            waiting.discard(filter)
            if not waiting:
                del self._unplaced[incarnation]

    def fresh(self) -> Self:
        return type(self)(self._router, self._me, self._find_peer)

    def swap(self, fresh: Self) -> None:
        self._index, self._peers, self._unplaced = fresh._index, fresh._peers, fresh._unplaced
        self.go_live()

    def joined(self, incarnation: str) -> None:
        """The node is a member now: place the rows that came before."""
        for filter in self._unplaced.pop(incarnation, ()):
            self.put((filter, incarnation), None, None)

    def gone(self, incarnation: str) -> None:
        """The node was purged. Its rows go as the table sweeps them; until then its peer takes and forgets."""
        self._unplaced.pop(incarnation, None)

    def _add(self, filter: bytes, peer: Peer) -> None:
        self._index.add(filter, peer)
        if self._live:
            self._router.changed(filter)


class Members:
    """Tells the routes which nodes there are."""

    def __init__(self, routes: RemoteRoutes) -> None:
        self._routes = routes
        self._known: set[str] = set()

    def put(self, key: str, value: NodeInfo, old: NodeInfo | None) -> None:
        self._known.add(key)
        self._routes.joined(key)

    def delete(self, key: str, old: NodeInfo) -> None:
        self._known.discard(key)
        self._routes.gone(key)

    def fresh(self) -> Self:
        return type(self)(_Nothing())

    def swap(self, fresh: Self) -> None:
        self._known = fresh._known
        for incarnation in self._known:
            self._routes.joined(incarnation)


class _Nothing(RemoteRoutes):
    """What members that nobody reads yet tell."""

    def __init__(self) -> None:
        pass

    def joined(self, incarnation: str) -> None:
        pass

    def gone(self, incarnation: str) -> None:
        pass
