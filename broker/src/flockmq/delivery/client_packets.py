"""Packets between the owners of sessions and the nodes of their clients: DELIVERY frames.

They are neither numbered nor kept. Whoever sent them hears when there is no link to a node, or no room on it, and says
all again with the next link.
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
        self.on_came: Callable[[str, bytes], None] = _ignore
        """(incarnation, body of a frame): for clients of this node whose sessions run there. Raises ValueError."""
        self.latest = LatestLinks()
        self._mesh = cluster.mesh
        cluster.handlers.frames[frames.DELIVERY] = self._came
        cluster.on_link_down.append(self.latest.link_down)

    def send(self, incarnation: str, parts: list[bytes], size_bytes: int) -> bool:
        """Packets for clients of another node, whose sessions run here. False: there is no link, or no room on it."""
        link = self._mesh.link_of(incarnation)
        if link is None or link.data_bytes > bounds.DELIVERIES_MAX_BYTES:
            return False
        link.send_data([frames.delivery_header(size_bytes), *parts], size_bytes)
        return True

    def _came(self, link: Link, body: bytes) -> None:
        if self.latest.is_late(link, len(body)):
            return
        link.used_at = link.heard_at
        try:
            self.on_came(link.peer.incarnation, body)
        except ValueError as error:
            link.close(str(error))


def _ignore(incarnation: str, body: bytes) -> None:
    """Nobody is a client of this node."""
