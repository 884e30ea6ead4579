"""What nodes say to one another of client ids and sessions: how it is said, and who hears it.

What always holds: what a node says to itself is a call, without a link. A note that can't be understood, or fails where
it is heard, keeps nobody from hearing the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from flockmq.session_rpc.outbox import Outbox
from flockmq.session_rpc.ports import ClusterPort, PacketsPort

log: Final = logging.getLogger(__name__)

Item = TypeVar("Item")


class Notes:
    """One per node. `on_untold` and `on_behind` are the outbox' `untold` and `behind`."""

    def __init__(self, cluster: ClusterPort, packets: PacketsPort) -> None:
        self.me: str = cluster.incarnation
        self.on_untold: Callable[[str, str], None] = _nobody_asks
        self.on_behind: Callable[[str], None] = _nobody_delivers
        self.delivered_here: Callable[[str, int, bytes], None] = _nobody_is_here
        """Gets what sessions that run here send to clients of this node."""
        self.outbox = Outbox(cluster, packets.send, self._untold, self._behind)
        self._cluster = cluster
        self._takes: dict[str, Callable[[str, Any], None]] = {}
        """What is done with an item of a note. Its decoder gave it its form."""

    def hear(self, method: str, decode: Callable[[bytes], Sequence[Item]], take: Callable[[str, Item], None]) -> None:
        """Give each item of a note of this kind to `take`, with the incarnation of the node that says it."""
        self._takes[method] = take
        self._cluster.on_note(method, partial(self._came, method, decode))

    def say(self, to: str, method: str, item: object) -> None:
        if to == self.me:
            self.take(to, method, item)
        else:
            self.outbox.put(to, method, item)

    def say_to_all(self, method: str, item: object) -> None:
        for incarnation in self._cluster.nodes_table:
            if self.is_linked(incarnation):
                self.say(incarnation, method, item)

    def deliver(self, incarnation: str, token: int, packets: bytes) -> None:
        """Send to the client of a session that runs here."""
        if incarnation == self.me:
            self.delivered_here(incarnation, token, packets)
        else:
            self.outbox.deliver(incarnation, token, packets)

    def owner(self, slot: int) -> str:
        """The incarnation of the core that owns the slot, "" for none."""
        return self._cluster.slots.owners[slot]

    def is_linked(self, incarnation: str) -> bool:
        return incarnation == self.me or self._cluster.is_linked(incarnation)

    def waits(self, owner: str) -> bool:
        """What was said to it isn't all gone yet: say no more, but for what can't wait. Without a link, what is to be
        said once there is one may wait for long, and holds up nobody.
        """
        return owner != self.me and self._cluster.is_linked(owner) and self.outbox.waits(owner)

    def _came(self, method: str, decode: Callable[[bytes], Sequence[object]], incarnation: str, body: bytes) -> None:
        for item in decode(body):
            self.take(incarnation, method, item)

    def take(self, incarnation: str, method: str, item: object) -> None:
        """One item that a node said."""
        try:
            self._takes[method](incarnation, item)
        except Exception:  # the link, the others in the note, and whoever said it here, have no part in it
            log.exception("what %s said could not be done: %s", incarnation, method)

    def _untold(self, incarnation: str, method: str) -> None:
        self.on_untold(incarnation, method)

    def _behind(self, incarnation: str) -> None:
        self.on_behind(incarnation)


def _nobody_asks(incarnation: str, method: str) -> None:
    """Until there is a client."""


def _nobody_delivers(incarnation: str) -> None:
    """Until there is a server."""


def _nobody_is_here(incarnation: str, token: int, packets: bytes) -> None:
    """Until there is a client."""
