"""Packets between the owners of durable sessions and their clients' nodes: DELIVERY frames.

They are neither numbered nor kept. If there is no link to a node, or no room on it, the sender is told, and sends
everything again on the next link.

Invariant: packets for a node go over one link. When the link changes, the sender first sends everything again. The
receiver drops what still arrives on the old link.
"""

from __future__ import annotations

from collections.abc import Callable

from flockmq import bounds
from flockmq.delivery import frames
from flockmq.delivery.latest_links import LatestLinks
from flockmq.membership.cluster import Cluster
from flockmq.membership.link import Link


class ClientPackets:
    """One per node."""

    def __init__(self, cluster: Cluster) -> None:
        self.on_received: Callable[[str, bytes], None] = _ignore
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
        link.send_data([frames.delivery_header(size_bytes), *parts], size_bytes)
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


def _ignore(incarnation: str, body: bytes) -> None:
    """This node has no clients."""
