"""What this node has to say to others about client ids and sessions: gathered for a turn, one note a node and kind.

What always holds: notes to one node leave in `messages.ORDER`, as fast as its link takes them, and deliveries behind
the notes of their turn. What can't be told waits for a link while the node is a member, within HOME_OUT_MAX notes a
node and kind. Beyond it what the next link mends is dropped, and counted, and the link, if there is one, is cut: the
node then asks anew what wasn't answered, and registers whom it has, which finds who is to be kicked. That a connection
is gone, or is to go for want of room, is said in any case: there are no more of these than there were connections.
Questions are asked again by whoever asked, and deliveries are not kept: who is linked again says so, and gets them from
the session (`server.SessionRpcServer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import Final, Protocol

from flockmq import bounds
from flockmq.session_rpc import messages

ASKED_AGAIN: Final = (messages.ATTACH, messages.ASK, messages.REPORT, messages.REGISTER)
"""Kinds that whoever put them puts again when the link is back."""
MENDED: Final = (messages.ANSWER, messages.KICK, messages.TOLD, messages.AGAIN)
"""Kinds whose loss the next link mends."""
NOTE_BYTES: Final = bounds.LINK_FRAME_MAX_BYTES // 8
"""A link that is sent a larger frame than it takes is closed."""


class OutboxLinks(Protocol):
    @property
    def nodes_table(self) -> Container[str]:
        """The incarnations that are members."""
        ...

    def tell(self, incarnation: str, method: str, body: bytes) -> bool: ...
    def is_backed_up(self, incarnation: str) -> bool:
        """So much that was told waits on its link that no more should be."""
        ...

    def cut(self, incarnation: str) -> None:
        """Make the links to it anew, if there are any."""
        ...


class Outbox:
    """`send`: that of `PacketsPort`. `untold(incarnation, method)`: notes of a kind that is asked again found no link;
    `behind(incarnation)`: so did deliveries, or no room.
    """

    def __init__(
        self,
        cluster: OutboxLinks,
        send: Callable[[str, list[bytes], int], bool],
        untold: Callable[[str, str], None],
        behind: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._send_packets = send
        self._untold = untold
        self._behind = behind
        self._loop = asyncio.get_running_loop()
        self._notes: dict[tuple[str, str], list[object]] = {}
        self._deliveries: dict[str, list[bytes]] = {}
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._lossy: dict[str, None] = {}
        """Nodes that won't be told all, unless there is another link."""
        self.dropped = 0
        """Notes that found no room."""

    def put(self, incarnation: str, method: str, item: object) -> None:
        items = self._notes.setdefault((incarnation, method), [])
        if len(items) < bounds.HOME_OUT_MAX or method not in MENDED:
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
        """The node is gone."""
        self._deliveries.pop(incarnation, None)
        for key in [key for key in self._notes if key[0] == incarnation]:
            del self._notes[key]

    def waits(self, incarnation: str) -> bool:
        """What was put for the node isn't all on its link, or waits there."""
        return self._cluster.is_backed_up(incarnation) or any(to == incarnation for to, _ in self._notes)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _flush(self) -> None:
        self._flushing = False
        while self._lossy:
            self._cluster.cut(self._lossy.popitem()[0])
        choked: set[str] = set()
        for incarnation, method in sorted(self._notes, key=lambda key: messages.ORDER.index(key[1])):
            if incarnation not in choked and not self._tell(incarnation, method):
                choked.add(incarnation)
        if choked and self._timer is None:
            self._timer = self._loop.call_later(bounds.HOME_PACE_S, self._go_on)
        deliveries, self._deliveries = self._deliveries, {}
        for incarnation, parts in deliveries.items():
            if incarnation in choked:  # they would pass what they must come behind
                self._behind(incarnation)
            else:
                self._send(incarnation, parts)

    def _go_on(self) -> None:
        self._timer = None
        self.schedule()

    def _tell(self, incarnation: str, method: str) -> bool:
        """All of one kind; False: the rest of it, and what comes behind, waits until the link took more."""
        items = self._notes[incarnation, method]
        told = 0
        for count, note in messages.batches(items, bounds.HOME_BATCH_MAX, NOTE_BYTES):
            if self._cluster.is_backed_up(incarnation):
                del items[:told]
                return False
            if not self._cluster.tell(incarnation, method, note):
                break
            told += count
        is_told = told == len(items)
        if is_told or method in ASKED_AGAIN or incarnation not in self._cluster.nodes_table:
            del self._notes[incarnation, method]
        else:
            del items[:told]
        if not is_told and method in ASKED_AGAIN:
            self._untold(incarnation, method)
        return True

    def _send(self, incarnation: str, parts: list[bytes]) -> None:
        frame: list[bytes] = []
        size = 0
        for part in parts:
            if frame and size + len(part) > bounds.LINK_FORWARD_FRAME_BYTES:
                if not self._send_packets(incarnation, frame, size):
                    self._behind(incarnation)
                    return
                frame, size = [], 0
            frame.append(part)
            size += len(part)
        if frame and not self._send_packets(incarnation, frame, size):
            self._behind(incarnation)
