"""Notes between nodes about client ids and sessions: sends them, and calls the handlers of received ones.

Invariants: a note of a node to itself is a function call. If an item can't be decoded or its handler raises, the other
items and notes are still handled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from flockmq.default_callbacks import ignore
from flockmq.delivery.session_packets import ClientPackets
from flockmq.membership.cluster import Cluster
from flockmq.session_rpc.outbox import Outbox

log: Final = logging.getLogger(__name__)


Item = TypeVar("Item")


class Notes:
    """The notes of one node. The user of this class sets `on_unsent` and `on_deliveries_failed` of `outbox`."""

    def __init__(self, cluster: Cluster, packets: ClientPackets) -> None:
        self.me: str = cluster.incarnation
        self.delivered_here: Callable[[str, int, bytes], None] = ignore
        """Called with packets of sessions on this core to clients of this node."""
        self.outbox = Outbox(cluster, packets.send)
        self._cluster = cluster
        self._takes: dict[str, Callable[[str, Any], None]] = {}
        """Handlers by kind of note; each gets one decoded item."""

    def on_note(
        self, method: str, decode: Callable[[bytes], Sequence[Item]], take: Callable[[str, Item], None]
    ) -> None:
        """Call `take` for each item of notes of this kind, with the incarnation of the sender."""
        self._takes[method] = take
        self._cluster.on_note(method, partial(self._came, method, decode))

    def send(self, to: str, method: str, item: object) -> None:
        if to == self.me:
            self.take(to, method, item)
        else:
            self.outbox.put(to, method, item)

    def send_to_all(self, method: str, item: object) -> None:
        for incarnation in self._cluster.nodes_table:
            if self.is_linked(incarnation):
                self.send(incarnation, method, item)

    def deliver(self, incarnation: str, token: int, packets: bytes) -> None:
        """Send packets of a session on this core to its client."""
        if incarnation == self.me:
            self.delivered_here(incarnation, token, packets)
        else:
            self.outbox.deliver(incarnation, token, packets)

    def owner(self, slot: int) -> str:
        """The incarnation of the core that owns the slot; "": no owner."""
        return self._cluster.slots.owners[slot]

    def is_linked(self, incarnation: str) -> bool:
        return incarnation == self.me or self._cluster.is_linked(incarnation)

    def waits(self, owner: str) -> bool:
        """True if notes for the owner wait to be sent on its link: send only what is urgent. Notes that wait because
        there is no link don't count, as that may take long.
        """
        return owner != self.me and self._cluster.is_linked(owner) and self.outbox.waits(owner)

    def _came(self, method: str, decode: Callable[[bytes], Sequence[object]], incarnation: str, body: bytes) -> None:
        for item in decode(body):
            self.take(incarnation, method, item)

    def take(self, incarnation: str, method: str, item: object) -> None:
        """Handle one item from a node."""
        try:
            self._takes[method](incarnation, item)
        except Exception:  # One bad item must not stop the others, the link, or a local caller.
            log.exception("a note of %s could not be handled: %s", incarnation, method)
