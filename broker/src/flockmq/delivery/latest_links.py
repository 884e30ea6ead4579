"""Knows over which link each node sends data now; data from its older links is late and dropped. No I/O.

A node sends each kind of data over one link at a time. After it changed to a new link, it resends there everything that
must arrive. So data that still comes from the old link is out of order. Invariant: the data that is taken from a node
has the order in which the node sent it.
"""

from __future__ import annotations

from flockmq.membership.link import Link


class LatestLinks:
    """The latest link of each node, for one kind of data."""

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
