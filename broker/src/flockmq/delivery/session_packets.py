"""Packets between the owners of durable sessions and their clients' nodes: DELIVERY frames.

They are neither numbered nor kept. If there is no link to a node, or no room on it, the sender is told, and sends
everything again on the next link.

Invariant: packets for a node go over one link. When the link changes, the sender first sends everything again. The
receiver drops what still arrives on the old link (`LatestLinks`).
"""

from __future__ import annotations

from collections.abc import Callable

from flockmq import bounds
from flockmq.default_callbacks import ignore
from flockmq.delivery import frames
from flockmq.membership.cluster import Cluster
from flockmq.membership.frames import header
from flockmq.membership.link import Link


class LatestLinks:
    """The latest link of each node, for one kind of data. No I/O.

    A node sends each kind of data over one link at a time. After it changed to a new link, it resends there everything
    that must arrive. So data that still comes from the old link is out of order, and is dropped. Invariant: the data
    that is taken from a node has the order in which the node sent it.
    """

    def __init__(self) -> None:
        self.late_bytes = 0
        self._latest: dict[str, Link] = {}
        self._former: dict[Link, None] = {}

    def is_late(self, link: Link, size_bytes: int) -> bool:
        """True if the data came over an older link. It is counted, and must be dropped."""
        node = link.peer.incarnation
        latest = self._latest.get(node)
        if latest is link:
            return False
        if link in self._former:
            self.late_bytes += size_bytes
            return True
        if latest is not None:
            self._former[latest] = None
        self._latest[node] = link
        return False

    def link_down(self, link: Link) -> None:
        self._former.pop(link, None)
        if self._latest.get(link.peer.incarnation) is link:
            del self._latest[link.peer.incarnation]


class ClientPackets:
    """Sends and receives the DELIVERY frames of this node."""

    def __init__(self, cluster: Cluster) -> None:
        self.on_received: Callable[[str, bytes], None] = ignore
        """(incarnation, body of a frame): packets for clients of this node whose sessions run there. Raises
        ValueError."""
        self.latest = LatestLinks()
        self._sent_by: dict[str, Link] = {}
        """The link on which the last packets went to a node, while it is up."""
        self._mesh = cluster.mesh
        cluster.handlers.frames[frames.DELIVERY] = self._received
        cluster.on_link_down += [self.latest.link_down, self._link_down]

    def send(self, incarnation: str, parts: list[bytes], size_bytes: int) -> bool:
        """Send packets for clients of another node whose sessions run here. False: there is no link, no room on it, or
        it is not the link of the previous packets."""
        link = self._mesh.link_of(incarnation)
        if link is None or link.data_bytes > bounds.DELIVERIES_MAX_BYTES:
            return False
        if self._sent_by.setdefault(incarnation, link) is not link:
            del self._sent_by[incarnation]
            return False
        link.send_data([header(frames.DELIVERY, size_bytes), *parts], size_bytes)
        return True

    def _link_down(self, link: Link) -> None:
        """The sender is told about the lost link, too."""
        if self._sent_by.get(link.peer.incarnation) is link:
            del self._sent_by[link.peer.incarnation]

    def _received(self, link: Link, body: bytes) -> None:
        if self.latest.is_late(link, len(body)):
            return
        link.used_at = link.heard_at
        try:
            self.on_received(link.peer.incarnation, body)
        except ValueError as error:
            link.close(str(error))
