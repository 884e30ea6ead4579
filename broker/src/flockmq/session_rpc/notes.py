"""Notes between nodes about client ids and sessions: gathers and sends them, and calls the handlers of received ones.

Notes are gathered in each event-loop iteration: one note for each node and kind. Invariants:
- A note of a node to itself is a function call. If an item can't be decoded or its handler raises, the other items and
  notes are still handled.
- Notes to one node are sent in `messages.ORDER`, as fast as its link accepts them. Packets to clients (deliveries) are
  sent after the notes of the same iteration.
- Notes for a member without a link wait, at most NOTES_WAITING_MAX for each node and kind. Beyond that, notes of the
  `MENDED` kinds are dropped and counted, and the link, if any, is cut. On the new link the node repeats its unanswered
  requests and registers its connections, from which the owner sees which must be kicked.
- DETACH and OVERFLOW are never dropped: there can't be more of them than connections.
- Notes of the `ASKED_AGAIN` kinds are repeated by their callers. Deliveries aren't kept: after a new link the session
  sends everything again (`server.SessionRpcServer`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from flockmq import bounds
from flockmq.default_callbacks import ignore
from flockmq.delivery.batch_queue import in_frames
from flockmq.delivery.session_packets import ClientPackets
from flockmq.membership.cluster import Cluster
from flockmq.session_rpc import messages

log: Final = logging.getLogger(__name__)

ASKED_AGAIN: Final = (messages.ATTACH, messages.ASK, messages.REPORT, messages.REGISTER)
"""Kinds whose callers repeat them when the link is back."""
MENDED: Final = (messages.ANSWER, messages.KICK, messages.REPLY, messages.AGAIN)
"""Kinds whose loss a new link repairs."""
NOTE_BYTES: Final = bounds.LINK_FRAME_MAX_BYTES // 8
"""Notes stay well below the largest frame; a peer closes a link on which it receives a larger one."""

Item = TypeVar("Item")


class Notes:
    """The notes of one node, and the packets of its sessions to their clients."""

    def __init__(self, cluster: Cluster, packets: ClientPackets) -> None:
        self.me: str = cluster.incarnation
        self.delivered_here: Callable[[str, int, bytes], None] = ignore
        """Called with packets of sessions on this core to clients of this node."""
        self.on_unsent: Callable[[str, str], None] = ignore
        """Called with (incarnation, method) if notes of an ASKED_AGAIN kind found no link."""
        self.on_deliveries_failed: Callable[[str], None] = ignore
        """Called with the incarnation of a node if deliveries to it found no link or no room."""
        self.dropped: int = 0
        """Number of notes that found no room."""
        # Tests lower these; in compiled code constants couldn't be changed.
        self.waiting_max: int = bounds.NOTES_WAITING_MAX
        self.batch_max: int = bounds.NOTES_BATCH_MAX
        self.retry_s: float = bounds.NOTES_RETRY_S
        self._cluster = cluster
        self._packets = packets
        self._loop = asyncio.get_running_loop()
        self._takes: dict[str, Callable[[str, Any], None]] = {}
        """Handlers by kind of note; each gets one decoded item."""
        self._waiting: dict[str, dict[str, list[object]]] = {method: {} for method in messages.ORDER}
        """Kind of note → incarnation → items."""
        self._deliveries: dict[str, list[bytes]] = {}
        self._flushing: bool = False
        self._timer: asyncio.TimerHandle | None = None
        self._lossy: dict[str, None] = {}
        """Nodes for which notes were dropped, so that a new link is needed."""

    def on_note(
        self, method: str, decode: Callable[[bytes], Sequence[Item]], take: Callable[[str, Item], None]
    ) -> None:
        """Call `take` for each item of notes of this kind, with the incarnation of the sender."""
        self._takes[method] = take
        self._cluster.on_note(method, partial(self._came, method, decode))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # Nodes.

    def owner(self, slot: int) -> str:
        """The incarnation of the core that owns the slot; "": no owner."""
        return self._cluster.slots.owners[slot]

    def is_linked(self, incarnation: str) -> bool:
        return incarnation == self.me or self._cluster.is_linked(incarnation)

    def waits(self, owner: str) -> bool:
        """True if notes for the owner wait to be sent on its link: send only what is urgent. Notes that wait because
        there is no link don't count, as that may take long.
        """
        if owner == self.me or not self._cluster.is_linked(owner):
            return False
        return self._cluster.is_backed_up(owner) or any(owner in notes for notes in self._waiting.values())

    def forget(self, incarnation: str) -> None:
        """The node was purged."""
        self.link_lost(incarnation)
        for notes in self._waiting.values():
            notes.pop(incarnation, None)

    def link_lost(self, incarnation: str) -> None:
        """Deliveries may be lost. Those that still wait must not arrive before these are sent again."""
        self._deliveries.pop(incarnation, None)

    # In.

    def _came(self, method: str, decode: Callable[[bytes], Sequence[object]], incarnation: str, body: bytes) -> None:
        for item in decode(body):
            self.take(incarnation, method, item)

    def take(self, incarnation: str, method: str, item: object) -> None:
        """Handle one item from a node."""
        try:
            self._takes[method](incarnation, item)
        except Exception:  # One bad item must not stop the others, the link, or a local caller.
            log.exception("a note of %s could not be handled: %s", incarnation, method)

    # Out.

    def send(self, to: str, method: str, item: object) -> None:
        if to == self.me:
            self.take(to, method, item)
            return
        items = self._waiting[method].setdefault(to, [])
        if len(items) < self.waiting_max or method not in MENDED:
            items.append(item)
        else:
            self.dropped += 1
            self._lossy[to] = None
        self.schedule()

    def send_to_all(self, method: str, item: object) -> None:
        for incarnation in self._cluster.nodes_table:
            if self.is_linked(incarnation):
                self.send(incarnation, method, item)

    def deliver(self, incarnation: str, token: int, packets: bytes) -> None:
        """Send packets of a session on this core to its client."""
        if incarnation == self.me:
            self.delivered_here(incarnation, token, packets)
        else:
            self._deliveries.setdefault(incarnation, []).append(messages.delivery(token, packets))
            self.schedule()

    def schedule(self) -> None:
        if not self._flushing and (self._deliveries or any(self._waiting.values())):
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        while self._lossy:
            self._cluster.cut(self._lossy.popitem()[0])
        full: set[str] = set()
        for method, notes in self._waiting.items():
            for incarnation in list(notes):
                if incarnation not in full and not self._tell(incarnation, method, notes):
                    full.add(incarnation)
        if full and self._timer is None:
            self._timer = self._loop.call_later(self.retry_s, self._go_on)
        deliveries, self._deliveries = self._deliveries, {}
        for incarnation, parts in deliveries.items():
            if incarnation in full:  # Otherwise they would overtake notes that must arrive first.
                self.on_deliveries_failed(incarnation)
            else:
                self._send_packets(incarnation, parts)

    def _go_on(self) -> None:
        self._timer = None
        self.schedule()

    def _tell(self, incarnation: str, method: str, notes: dict[str, list[object]]) -> bool:
        """Send all notes of one kind to one node. Returns False if the link is full: the rest, and later kinds,
        wait.
        """
        items = notes[incarnation]
        told = 0
        for count, note in messages.batches(items, self.batch_max, NOTE_BYTES):
            if not self._cluster.notify(incarnation, method, note):
                break
            told += count
        is_told = told == len(items)
        if not is_told and self._cluster.is_backed_up(incarnation):
            del items[:told]
            return False
        if is_told or method in ASKED_AGAIN or incarnation not in self._cluster.nodes_table:
            del notes[incarnation]
        else:
            del items[:told]
        if not is_told and method in ASKED_AGAIN:
            self.on_unsent(incarnation, method)
        return True

    def _send_packets(self, incarnation: str, parts: list[bytes]) -> None:
        for some, size_bytes in in_frames(parts, len):
            if not self._packets.send(incarnation, some, size_bytes):
                self.on_deliveries_failed(incarnation)
                return
