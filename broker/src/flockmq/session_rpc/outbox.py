"""Outgoing notes of this node, gathered in each event-loop iteration: one note for each node and kind.

Invariants:
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
from collections.abc import Callable
from typing import Final

from flockmq import bounds
from flockmq.default_callbacks import ignore
from flockmq.delivery.batch_queue import in_frames
from flockmq.membership.cluster import Cluster
from flockmq.session_rpc import messages

ASKED_AGAIN: Final = (messages.ATTACH, messages.ASK, messages.REPORT, messages.REGISTER)
"""Kinds whose callers repeat them when the link is back."""
MENDED: Final = (messages.ANSWER, messages.KICK, messages.REPLY, messages.AGAIN)
"""Kinds whose loss a new link repairs."""
NOTE_BYTES: Final = bounds.LINK_FRAME_MAX_BYTES // 8
"""Notes stay well below the largest frame; a peer closes a link on which it receives a larger one."""


class Outbox:
    """The notes and deliveries that this node has to send. `send` sends deliveries, as `ClientPackets.send`."""

    def __init__(self, cluster: Cluster, send: Callable[[str, list[bytes], int], bool]) -> None:
        self.on_unsent: Callable[[str, str], None] = ignore
        """Called with (incarnation, method) if notes of an ASKED_AGAIN kind found no link."""
        self.on_deliveries_failed: Callable[[str], None] = ignore
        """Called with the incarnation of a node if deliveries to it found no link or no room."""
        self._cluster = cluster
        self._send_packets = send
        self._loop = asyncio.get_running_loop()
        self._notes: dict[tuple[str, str], list[object]] = {}
        self._deliveries: dict[str, list[bytes]] = {}
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._lossy: dict[str, None] = {}
        """Nodes for which notes were dropped, so that a new link is needed."""
        self.dropped = 0
        """Number of notes that found no room."""

    def put(self, incarnation: str, method: str, item: object) -> None:
        items = self._notes.setdefault((incarnation, method), [])
        if len(items) < bounds.NOTES_WAITING_MAX or method not in MENDED:
            items.append(item)
        else:
            self.dropped += 1
            self._lossy[incarnation] = None
        self.schedule()

    def deliver(self, incarnation: str, token: int, chunk: bytes) -> None:
        self._deliveries.setdefault(incarnation, []).append(messages.delivery(token, chunk))
        self.schedule()

    def schedule(self) -> None:
        if (self._notes or self._deliveries) and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def forget(self, incarnation: str) -> None:
        """The node was purged."""
        self._deliveries.pop(incarnation, None)
        for key in [key for key in self._notes if key[0] == incarnation]:
            del self._notes[key]

    def link_lost(self, incarnation: str) -> None:
        """Deliveries may be lost. Those that still wait must not arrive before these are sent again."""
        self._deliveries.pop(incarnation, None)

    def waits(self, incarnation: str) -> bool:
        """True if notes for the node aren't on its link yet, or wait there."""
        return self._cluster.is_backed_up(incarnation) or any(to == incarnation for to, _ in self._notes)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _flush(self) -> None:
        self._flushing = False
        while self._lossy:
            self._cluster.cut(self._lossy.popitem()[0])
        full: set[str] = set()
        for incarnation, method in sorted(self._notes, key=lambda key: messages.ORDER.index(key[1])):
            if incarnation not in full and not self._tell(incarnation, method):
                full.add(incarnation)
        if full and self._timer is None:
            self._timer = self._loop.call_later(bounds.NOTES_RETRY_S, self._go_on)
        deliveries, self._deliveries = self._deliveries, {}
        for incarnation, parts in deliveries.items():
            if incarnation in full:  # Otherwise they would overtake notes that must arrive first.
                self.on_deliveries_failed(incarnation)
            else:
                self._send(incarnation, parts)

    def _go_on(self) -> None:
        self._timer = None
        self.schedule()

    def _tell(self, incarnation: str, method: str) -> bool:
        """Send all notes of one kind. Returns False if the link is full: the rest, and later kinds, wait."""
        items = self._notes[incarnation, method]
        told = 0
        for count, note in messages.batches(items, bounds.NOTES_BATCH_MAX, NOTE_BYTES):
            if self._cluster.is_backed_up(incarnation):
                del items[:told]
                return False
            if not self._cluster.notify(incarnation, method, note):
                break
            told += count
        is_told = told == len(items)
        if is_told or method in ASKED_AGAIN or incarnation not in self._cluster.nodes_table:
            del self._notes[incarnation, method]
        else:
            del items[:told]
        if not is_told and method in ASKED_AGAIN:
            self.on_unsent(incarnation, method)
        return True

    def _send(self, incarnation: str, parts: list[bytes]) -> None:
        for some, size_bytes in in_frames(parts, len):
            if not self._send_packets(incarnation, some, size_bytes):
                self.on_deliveries_failed(incarnation)
                return
