"""What this node has to say to others about client ids and sessions: gathered for a turn, one note a node and kind.

What always holds: notes to one node leave in `wire.ORDER`, and deliveries behind the notes of their turn. What can't
be told waits for a link while the node is a member, within HOME_OUT_MAX notes a node and kind. Beyond it what the
next link mends is dropped, and counted: the node then asks anew what wasn't answered, and registers whom it has,
which finds who is to be kicked. That a connection is gone, or is to go for want of room, is said in any case: there
are no more of these than there were connections. Questions are asked again by whoever asked, and deliveries are not
kept: who is linked again says so, and gets them from the session (`service.Homes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import Final, Protocol

from flockmq import bounds
from flockmq.home import wire

ASKED_AGAIN: Final = (wire.ATTACH, wire.ASK, wire.REPORT, wire.REGISTER)
"""Kinds that whoever put them puts again when the link is back."""
MENDED: Final = (wire.ANSWER, wire.KICK, wire.TOLD, wire.AGAIN)
"""Kinds whose loss the next link mends."""
NOTE_BYTES: Final = bounds.LINK_FRAME_MAX_BYTES // 8
"""A link that is sent a larger frame than it takes is closed."""


class Cluster(Protocol):
    @property
    def nodes_table(self) -> Container[str]:
        """The incarnations that are members."""
        ...

    def tell(self, incarnation: str, method: str, body: bytes) -> bool: ...
    def deliver(self, incarnation: str, parts: list[bytes], size_bytes: int) -> bool:
        """One DELIVERY frame; False: there is no link, or too much waits on it already."""
        ...


class Outbox:
    """`untold(incarnation, method)`: notes of a kind that is asked again found no link; `behind(incarnation)`: so did
    deliveries, or no room.
    """

    def __init__(self, cluster: Cluster, untold: Callable[[str, str], None], behind: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._untold = untold
        self._behind = behind
        self._loop = asyncio.get_running_loop()
        self._notes: dict[tuple[str, str], list[object]] = {}
        self._deliveries: dict[str, list[bytes]] = {}
        self._flushing = False
        self.dropped = 0
        """Notes that found no room."""

    def put(self, incarnation: str, method: str, item: object) -> None:
        items = self._notes.setdefault((incarnation, method), [])
        if len(items) < bounds.HOME_OUT_MAX or method not in MENDED:
            items.append(item)
        else:
            self.dropped += 1
        self.schedule()

    def deliver(self, incarnation: str, token: int, chunk: bytes) -> None:
        self._deliveries.setdefault(incarnation, []).append(wire.delivery(token, chunk))
        self.schedule()

    def schedule(self) -> None:
        if (self._notes or self._deliveries) and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def forget(self, incarnation: str) -> None:
        """The node is gone."""
        self._deliveries.pop(incarnation, None)
        for key in [key for key in self._notes if key[0] == incarnation]:
            del self._notes[key]

    def _flush(self) -> None:
        self._flushing = False
        for incarnation, method in sorted(self._notes, key=lambda key: wire.ORDER.index(key[1])):
            notes = wire.batches(self._notes[incarnation, method], bounds.HOME_BATCH_MAX, NOTE_BYTES)
            told = all(self._cluster.tell(incarnation, method, note) for note in notes)
            if told or method in ASKED_AGAIN or incarnation not in self._cluster.nodes_table:
                del self._notes[incarnation, method]
            if not told and method in ASKED_AGAIN:
                self._untold(incarnation, method)
        deliveries, self._deliveries = self._deliveries, {}
        for incarnation, parts in deliveries.items():
            self._send(incarnation, parts)

    def _send(self, incarnation: str, parts: list[bytes]) -> None:
        frame: list[bytes] = []
        size = 0
        for part in parts:
            if frame and size + len(part) > bounds.LINK_FORWARD_FRAME_BYTES:
                if not self._cluster.deliver(incarnation, frame, size):
                    self._behind(incarnation)
                    return
                frame, size = [], 0
            frame.append(part)
            size += len(part)
        if frame and not self._cluster.deliver(incarnation, frame, size):
            self._behind(incarnation)
