"""One client of a run: it connects to any node that answers, comes back when it is cut off, and writes down what it
sees. What it says once it is connected is its parts' affair: sending.py, taking.py, subscribing.py; when it goes away,
moves or changes its mind is decided by what it plays: habits.py, features/.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from conformance import wire
from load.history import Asked, Closed, Connected, Disconnected, Message, Refused, Will
from load.link import KEEP_ALIVE_S, Link
from load.sending import Sending
from load.stage import Node, Stage
from load.subscribing import Subscribing, Wish
from load.taking import Taking

RETRY_S: Final = 0.1
WITH_WILL: Final = 0x04
"""DISCONNECT's reason that has the will published."""


class Terms(NamedTuple):
    """What a client says of itself in CONNECT."""

    version: int = wire.V5
    expiry_s: float = 0.0
    """Of its session; infinity where 3.1.1 leaves it to the node."""
    receive_maximum: int = 16

    @property
    def lasts(self) -> bool:
        return self.expiry_s > 0


CLEAN: Final = Terms()
LASTING: Final = Terms(expiry_s=3600.0)
CLEAN_311: Final = Terms(wire.V311)
LASTING_311: Final = Terms(wire.V311, math.inf)


class Player:
    """One client: connected, on its way to be, or away."""

    def __init__(self, stage: Stage, name: str, terms: Terms = CLEAN, wishes: Sequence[Wish] = ()) -> None:
        self.stage = stage
        self.name = name
        self.terms = terms
        self.will: Will | None = None
        """For the next CONNECT; each gives it a number of its own."""
        self.link: Link | None = None
        self.node = ""
        self.sending = Sending(self)
        self.taking = Taking(self)
        self.subscribing = Subscribing(self, wishes)
        self._wills = 0
        self.is_away = False
        self._connecting = asyncio.Lock()
        self._changed = asyncio.Event()
        """Its connection ended, or it may come back."""

    async def run(self) -> None:
        """Until cancelled: be connected, unless away."""
        while True:
            self._changed.clear()
            if self.is_away or self.link is not None:
                await self._changed.wait()
            elif not await self.connect():
                await asyncio.sleep(RETRY_S)

    @property
    def is_settled(self) -> bool:
        """Connected, all that it wants is subscribed, and nothing is under way."""
        return self.link is not None and self.subscribing.is_settled and self.sending.is_idle

    async def connect(self, *, anew: bool = False, nodes: tuple[Node, ...] = ()) -> bool:
        """To some node, unless connected; to one of `nodes` if they are given. `anew`: even so, while the older
        connection is still open; it isn't listened to any more."""
        async with self._connecting:
            old = self.link
            if old is not None and not anew:
                return True
            if old is not None:
                old.received = _ignore
            try:
                node = self._chosen(nodes)
                begun = await self._begin(node)
                if begun is None:
                    return False
                link, present = begun
                if not present:
                    for part in (self.sending, self.subscribing, self.taking):
                        part.forget()
                if not link.is_open:
                    return False
                self.link, self.node = link, node.name
            finally:
                if old is not None and self.link is old:
                    old.close()
            for part in (self.sending, self.subscribing, self.taking):
                part.began()
            link.listen()
            return True

    def drop(self) -> None:
        """The connection ends as if the network had broken, and it comes back."""
        if self.link is not None:
            self.link.close()

    def disconnect(self, *, with_will: bool = False, ends: bool = False) -> None:
        """In order, and come back. `ends`: and the session with it; both are MQTT 5's."""
        if self.link is not None:
            self._disconnect(self.link, with_will, ends)

    def stay_away(self) -> None:
        """From its next end of a connection on, until `come_back`."""
        self.is_away = True

    def come_back(self) -> None:
        self.is_away = False
        self._changed.set()

    def settle(self) -> None:
        """Come back, want all that it ever wanted, and answer everything."""
        self.come_back()
        self.taking.settle()
        self.subscribing.settle()

    async def leave(self) -> None:
        """End the session too, on whatever node answers."""
        self.will = None
        if self.terms.lasts:
            self.terms = self.terms._replace(expiry_s=0.0)
            self._disconnect(await self._begun())
        self.disconnect()

    def send(self, packet: bytes) -> None:
        if self.link is not None:
            self.link.send(packet)

    async def _begin(self, node: Node) -> tuple[Link, bool] | None:
        """The connection, and whether a session was present; None unless the node said yes."""
        terms, stage = self.terms, self.stage
        link = Link(next(stage.connections), terms.version, self._received, self._closed)
        will = self._next_will()
        stage.record(
            Asked(
                stage.now(), self.name, link.number, node.name, terms.lasts, not terms.lasts,
                terms.version, terms.expiry_s, will,
            )
        )  # fmt: skip
        connack = await link.open(node.address, _connect(self.name, terms, will))
        if connack is None:
            return None
        if connack.reason:
            stage.record(Refused(stage.now(), self.name, link.number, connack.reason))
            return None
        stage.record(Connected(stage.now(), self.name, link.number, bool(connack.session_present)))
        return link, bool(connack.session_present)

    async def _begun(self) -> Link:
        """On whatever node says yes."""
        while True:
            if (begun := await self._begin(self._chosen(()))) is not None:
                return begun[0]
            await asyncio.sleep(RETRY_S)

    def _disconnect(self, link: Link, with_will: bool = False, ends: bool = False) -> None:
        self.stage.record(Disconnected(self.stage.now(), self.name, link.number, with_will, ends))
        reason = WITH_WILL if with_will else 0 if ends else None
        link.end(wire.disconnect(self.terms.version, reason, [(wire.SESSION_EXPIRY, 0)] if ends else None))

    def _chosen(self, nodes: tuple[Node, ...]) -> Node:
        """Another than the last, if there is one."""
        found = nodes or self.stage.nodes()
        return self.stage.random.choice([node for node in found if node.name != self.node] or list(found))

    def _next_will(self) -> Will | None:
        if self.will is None:
            return None
        self._wills += 1
        return self.will._replace(number=self._wills)

    def _received(self, packet: wire.Packet) -> None:
        if packet.kind in (wire.PUBLISH, wire.PUBREL):
            self.taking.received(packet)
        elif packet.kind in (wire.SUBACK, wire.UNSUBACK):
            self.subscribing.received(packet)
        else:
            self.sending.received(packet)

    def _closed(self, link: Link, by_server: bool, reason: int) -> None:
        self.stage.record(Closed(self.stage.now(), self.name, link.number, by_server, reason))
        if link is self.link:
            self.link, self.node = None, ""
            self.sending.ended()
            self._changed.set()


def _connect(name: str, terms: Terms, will: Will | None) -> bytes:
    properties: list[tuple[int, wire.Value]] = [(wire.RECEIVE_MAXIMUM, terms.receive_maximum)]
    if terms.lasts and terms.version == wire.V5:
        properties.append((wire.SESSION_EXPIRY, int(terms.expiry_s)))
    last_words = None
    if will is not None:
        payload = Message(f"{name}!", will.number).payload()
        delay = [(wire.WILL_DELAY, int(will.delay_s))] if will.delay_s else None
        last_words = wire.Will(will.topic, payload, will.qos, will.retain, delay)
    return wire.connect(
        terms.version, name, clean=not terms.lasts, keep_alive_s=KEEP_ALIVE_S, properties=properties, will=last_words
    )


def _ignore(packet: wire.Packet) -> None:
    """An older connection of a client that has a newer one."""
