"""One client of a campaign: it connects to any node that answers, comes back when it is cut off, and writes down what
it sees. What it says once it is connected is its kind's affair: publisher.py, subscriber.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from conformance import wire
from load.client import Link, Refused
from load.history import AnyEvent, Asked, Closed, Connected

WINDOW_MESSAGES: Final = 16
RETRY_S: Final = 0.1


class Node(NamedTuple):
    name: str
    address: tuple[str, int]


@dataclass
class Stage:
    """What all clients of a campaign share."""

    record: Callable[[AnyEvent], None]
    nodes: Callable[[], Sequence[Node]]
    """That clients may try now, at least one."""
    random: random.Random

    def now(self) -> float:
        return asyncio.get_running_loop().time()


class Player:
    """One client: connected, or on its way to be."""

    def __init__(self, stage: Stage, name: str, *, lasts: bool) -> None:
        self.stage = stage
        self.name = name
        self.lasts = lasts
        self.link: Link | None = None
        self.node = ""
        self.drops = 0
        """Connections that ended without our asking."""
        self._connecting = asyncio.Lock()
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not await self.connect():
                await asyncio.sleep(RETRY_S)
                continue
            await self._ended.wait()

    async def connect(self, *, anew: bool = False) -> bool:
        """To some node, unless connected. `anew`: even so, while the older connection is still open; it isn't listened
        to any more."""
        async with self._connecting:
            old = self.link
            if old is not None and not anew:
                return True
            if old is not None:
                old.received = _ignore
            nodes = self.stage.nodes()
            node = self.stage.random.choice([node for node in nodes if node.name != self.node] or list(nodes))
            link = Link(self.received, self._closed)
            self.stage.record(Asked(self.stage.now(), self.name, link.number, node.name, self.lasts))
            try:
                present = await link.connect(
                    node.address,
                    self.name,
                    lasts=self.lasts,
                    clean_start=not self.lasts,
                    receive_maximum=WINDOW_MESSAGES,
                )
            except Refused:
                if old is not None:
                    old.close()
                return False
            self.stage.record(Connected(self.stage.now(), self.name, link.number, present))
            if not link.is_open:
                if old is not None:
                    old.close()
                return False
            self.link, self.node = link, node.name
            self._ended.clear()
            self.began(present)
            link.listen()
            return True

    async def leave(self) -> None:
        """End the session too, on whatever node answers."""
        while self.lasts:
            node = self.stage.random.choice(self.stage.nodes())
            link = Link(_ignore, self._closed)
            self.stage.record(Asked(self.stage.now(), self.name, link.number, node.name, lasts=False, clean_start=True))
            try:
                present = await link.connect(
                    node.address, self.name, lasts=False, clean_start=True, receive_maximum=WINDOW_MESSAGES
                )
            except Refused:
                await asyncio.sleep(RETRY_S)
                continue
            self.stage.record(Connected(self.stage.now(), self.name, link.number, present))
            link.disconnect()
            break
        if self.link is not None:
            self.link.disconnect()

    def began(self, present: bool) -> None:
        raise NotImplementedError

    def received(self, packet: wire.Packet) -> None:
        raise NotImplementedError

    def _closed(self, link: Link, by_server: bool, reason: int) -> None:
        self.stage.record(Closed(self.stage.now(), self.name, link.number, by_server, reason))
        if link is self.link:
            self.link, self.node = None, ""
            self.drops += by_server
            self._ended.set()


def _ignore(packet: wire.Packet) -> None:
    """An older connection of a client that has a newer one."""
