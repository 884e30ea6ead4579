"""By which of its links a node sends data now: what comes by a former one is late. Pure.

A node sends data of one kind by one link, and by another when that one ended, for good: there it says again whatever
must arrive. What a broken network gives back of the former link has been passed by what came since. What always holds:
what is taken of a node comes in the order in which it was sent.
"""

from __future__ import annotations

from flockmq.membership.link import Link


class LatestLinks:
    """Of each node, for one kind of data."""

    def __init__(self) -> None:
        self.late_bytes = 0
        self._latest: dict[str, Link] = {}
        self._former: dict[Link, None] = {}

    def is_late(self, link: Link, size_bytes: int) -> bool:
        """It came by a former link, and is to be dropped; it is counted."""
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
