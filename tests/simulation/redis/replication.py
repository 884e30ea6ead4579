"""Copies of one server's records on others, as Redis replicates: late, in order, and only acknowledged afterwards.

A replica makes the changes of its primary again, keeps them on its own disk, and then acknowledges how far it is. One
whose history is a beginning of the primary's gets the rest; any other one loses all that it has, and gets a copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flockmq.redis.connection import Reply
from simulation.redis.keyspace import Change

if TYPE_CHECKING:
    from simulation.redis.server import Server

Record = list[Change]

MISSED_AFTER_S: Final = 3.0
"""As `min-replicas-max-lag`: how long a replica that isn't heard of still counts as a good one."""


class _Shipment:
    """Records on their way; `is_copy`: in place of all that the replica has."""

    __slots__ = ("has_arrived", "is_copy", "records")

    def __init__(self, records: list[Record], is_copy: bool) -> None:
        self.records = records
        self.is_copy = is_copy
        self.has_arrived = False


class Link:
    """A replica's connection to its primary; once it is cut, another one takes its place. `is_up`: the replica began to
    get the history. Up to where the primary sent it, the replica told that it has it, and the primary heard that."""

    __slots__ = ("_under_way", "acknowledged", "is_open", "is_up", "primary", "replica", "sent", "told")

    def __init__(self, primary: Server, replica: Server) -> None:
        self.primary = primary
        self.replica = replica
        self.is_open = True
        self.is_up = False
        self.sent = 0
        self.told = -1
        self.acknowledged = -1
        self._under_way: deque[_Shipment] = deque()

    def later(self, event: Callable[..., object], *args: object) -> None:
        """At the other end, if the connection holds until then."""
        self.primary.timers.call_later(self.replica.replication.lag_s(), self._at_the_end, event, args)

    def _at_the_end(self, event: Callable[..., object], args: tuple[object, ...]) -> None:
        if self.is_open:
            event(*args)

    def ship(self, records: list[Record], is_copy: bool) -> None:
        shipment = _Shipment(records, is_copy)
        self._under_way.append(shipment)
        self.later(self._arrived, shipment)

    def _arrived(self, shipment: _Shipment) -> None:
        """In the order of sending: what overtook others waits for them."""
        shipment.has_arrived = True
        while self._under_way and self._under_way[0].has_arrived:
            first = self._under_way.popleft()
            self.replica.post(self.replica.replication._arrived, self, first.records, first.is_copy)


class Replication:
    """One server's part in it, as a primary, as a replica, or as both."""

    def __init__(self, server: Server) -> None:
        self.primary: Server | None = None
        self.lag_s: Callable[[], float] = lambda: 0.0
        self.followers: dict[Server, None] = {}
        """Who has this server as its primary, connected or not."""
        self._server = server
        self._is_cut = False
        self._upstream: Link | None = None
        self._links: dict[Server, Link] = {}
        self._good: dict[Server, Link] = {}

    def stop(self) -> None:
        """The process ended, and with it all connections."""
        self._disconnect()
        for replica in list(self._links):
            replica.replication._disconnect()
        self._good.clear()

    def start(self) -> None:
        self._connect()
        for follower in self.followers:
            follower.replication._connect()

    def spread(self) -> None:
        """What is on disk goes to the replicas; that it is there, to the primary."""
        history, synced = self._server.history, self._server.synced
        for link in self._links.values():
            if link.sent < synced:
                link.ship(history[link.sent : synced], False)
                link.sent = synced
        upstream = self._upstream
        if upstream is not None and upstream.is_up and upstream.told < synced:
            upstream.told = synced
            primary = upstream.primary
            upstream.later(primary.post, primary.replication._acknowledge, upstream, synced)

    # --- as a primary -------------------------------------------------------------------------------------------------

    @property
    def good_replicas(self) -> int:
        return len(self._good)

    def acknowledged(self, place: int) -> int:
        """How many replicas have the history up to there."""
        return sum(link.acknowledged >= place for link in self._links.values())

    def _accept(self, link: Link, length: int, newest: Record | None) -> None:
        if link.is_open:
            self._links[link.replica] = link
            link.sent = self._server.synced
            link.ship(*self._missing(length, newest))

    def _missing(self, length: int, newest: Record | None) -> tuple[list[Record], bool]:
        """What a replica at that place of its own history is to be sent, and whether in place of all that it has."""
        history, synced = self._server.history, self._server.synced
        if not length or (length <= synced and history[length - 1] is newest):
            return history[length:synced], False
        return history[:synced], True

    def _acknowledge(self, link: Link, place: int) -> None:
        if link.is_open:
            link.acknowledged = max(link.acknowledged, place)
            self._good[link.replica] = link
            self._server.dispatcher.replicas_acknowledged()

    def _miss(self, link: Link) -> None:
        if self._good.get(link.replica) is link:
            del self._good[link.replica]

    # --- as a replica -------------------------------------------------------------------------------------------------

    @property
    def is_cut(self) -> bool:
        return self._is_cut

    @is_cut.setter
    def is_cut(self, is_cut: bool) -> None:
        self._is_cut = is_cut
        if is_cut:
            self._disconnect(is_noticed=False)
        else:
            self._connect()

    def follow(self, primary: Server) -> None:
        """REPLICAOF HOST PORT."""
        if primary is not self.primary:
            self._leave()
            self.primary = primary
            primary.replication.followers[self._server] = None
            self._server.keys.expires_keys = False
            self._server.dispatcher.disconnect_blocked()
            self._connect()

    def lead(self) -> None:
        """REPLICAOF NO ONE."""
        self._leave()
        self.primary = None
        self._server.keys.expires_keys = True

    def catch_up(self) -> None:
        """Have all at once that the primary has on disk."""
        assert self.primary is not None
        self._take(*self.primary.replication._missing(*self._place()))

    def _arrived(self, link: Link, records: list[Record], is_copy: bool) -> None:
        if link is self._upstream:
            link.is_up = True
            self._take(records, is_copy)

    def _take(self, records: list[Record], is_copy: bool) -> None:
        server = self._server
        if is_copy:
            server.load(records)
            for replica in list(self._links):
                replica.replication._disconnect()
                replica.replication._connect()
        else:
            server.history += records
            server.dispatcher.replay(records)

    @property
    def _is_up(self) -> bool:
        return self._upstream is not None and self._upstream.is_up

    def _place(self) -> tuple[int, Record | None]:
        history = self._server.history
        return len(history), history[-1] if history else None

    def _connect(self) -> None:
        primary = self.primary
        if primary is None or not primary.is_running or not self._server.is_running or self._is_cut or self._upstream:
            return
        link = self._upstream = Link(primary, self._server)
        link.later(primary.post, primary.replication._accept, link, *self._place())

    def _disconnect(self, *, is_noticed: bool = True) -> None:
        link, self._upstream = self._upstream, None
        if link is None:
            return
        link.is_open = False
        of_primary = link.primary.replication
        of_primary._links.pop(self._server, None)
        if is_noticed:
            of_primary._miss(link)
        else:
            self._server.timers.call_later(MISSED_AFTER_S, of_primary._miss, link)

    def _leave(self) -> None:
        self._disconnect()
        if self.primary is not None:
            del self.primary.replication.followers[self._server]

    # --- what it says of itself ---------------------------------------------------------------------------------------

    def info(self) -> list[str]:
        """Lines of INFO."""
        place = len(self._server.history)
        told = [f"connected_slaves:{len(self._links)}", f"master_repl_offset:{place}"]
        if self.primary is None:
            return ["role:master", *told]
        host, port = self.primary.address
        status = "up" if self._is_up else "down"
        of_primary = [f"master_host:{host}", f"master_port:{port}", f"master_link_status:{status}"]
        return ["role:slave", *of_primary, f"slave_repl_offset:{place}", *told]

    def role(self) -> Reply:
        place = len(self._server.history)
        if self.primary is not None:
            host, port = self.primary.address
            return [b"slave", host.encode(), port, b"connected" if self._is_up else b"connect", place]
        replicas: list[Reply] = []
        for replica, link in self._links.items():
            host, port = replica.address
            replicas.append([host.encode(), b"%d" % port, b"%d" % max(0, link.acknowledged)])
        return [b"master", place, replicas]
