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
from load.link import KEEP_ALIVE_S, SILENT_MAX_S, Link
from load.sending import Sending
from load.stage import Node, Stage
from load.subscribing import Subscribing, Wish
from load.taking import Taking
from load.waiting import holds_within

RETRY_S: Final = 0.1
RUSH_MAX_S: Final = 3.0
"""How long a client that came more than once waits until one connection is left."""
WITH_WILL: Final = 0x04
"""DISCONNECT's reason that has the will published."""


class Terms(NamedTuple):
    """What a client says of itself in CONNECT."""

    version: int = wire.V5
    expiry_s: float = 0.0
    """Of its session; infinity where 3.1.1 leaves it to the node."""
    receive_maximum: int = 16
    user: str = ""
    """Whose name it gives; empty: it gives none."""
    begins_anew: bool = False
    """Clean Start, though the session lasts."""
    goes_on: bool = False
    """No Clean Start, though the session ends with the connection."""
    packet_max: int = 0
    """Bytes; 0: it says none."""
    aliases: int = 0
    """How many it allows, and whether it uses its node's."""

    @property
    def lasts(self) -> bool:
        return self.expiry_s > 0

    @property
    def is_clean_start(self) -> bool:
        return self.begins_anew or not (self.lasts or self.goes_on)


CLEAN: Final = Terms()
DURABLE: Final = Terms(expiry_s=3600.0)
CLEAN_311: Final = Terms(wire.V311)
DURABLE_311: Final = Terms(wire.V311, math.inf)


class Player:
    """One client: connected, on its way to be, or away."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        terms: Terms = CLEAN,
        wishes: Sequence[Wish] = (),
        wanted: Sequence[str] | None = None,
    ) -> None:
        """`wanted`: of its wishes, what it wants when it comes, and when it settles; otherwise all."""
        self.stage = stage
        self.name = name
        self.terms = terms
        self.turns: Sequence[Terms] = ()
        """What it says of itself, another one at times; empty: always the same."""
        self.will: Will | None = None
        """For the next CONNECT; each gives it a number of its own. Before MQTT 5 it has no delay."""
        self.patience_s = SILENT_MAX_S
        """How long it waits for CONNACK."""
        self.link: Link | None = None
        self.node = ""
        """The last that it was connected to."""
        self.sending = Sending(self)
        self.taking = Taking(self)
        self.subscribing = Subscribing(self, wishes, wanted)
        self.is_away = False
        self._wills = 0
        self._others: dict[Link, None] = {}
        """Older connections that it doesn't listen to any more, until their nodes close them."""
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
    def is_connected(self) -> bool:
        return self.link is not None and self.link.is_open

    @property
    def is_settled(self) -> bool:
        """Connected, all that it wants is subscribed, and nothing is under way."""
        return self.link is not None and self.subscribing.is_settled and self.sending.is_idle

    async def connect(self, *, anew: bool = False, nodes: tuple[Node, ...] = ()) -> bool:
        """To some node, unless connected; to one of `nodes` if they are given. `anew`: even so, while the older
        connection is still open; it isn't listened to any more."""
        async with self._connecting:
            if self.link is not None and not anew:
                return True
            return await self._come_to((self._chosen(nodes),))

    async def reach(self, *nodes: Node) -> None:
        """Connect to one of these, however often it takes."""
        while True:
            if await self.connect(nodes=nodes):
                return
            await asyncio.sleep(RETRY_S)

    async def rush(self, count: int) -> bool:
        """Come to so many nodes at once, or to one of them more than once, and go on with the connection that is left;
        whether one is."""
        async with self._connecting:
            nodes = self.stage.nodes()
            return await self._come_to(tuple(self.stage.random.choice(nodes) for _ in range(count)))

    def drop(self) -> None:
        """The connection ends as if the network had broken, and it comes back."""
        if self.link is not None and self.link.is_open:
            self.link.close()
            self._fall_silent()

    def disconnect(self, *, with_will: bool = False, ends: bool = False, expiry_s: int = -1) -> None:
        """In order, and come back. `ends`: and the session with it; `expiry_s`: of that, from then on; all are MQTT
        5's."""
        if self.link is not None and self.link.is_open:
            self._disconnect(self.link, with_will, ends, expiry_s)
            self._fall_silent()

    def stay_away(self) -> None:
        """From its next end of a connection on, until `come_back`."""
        self.is_away = True

    def come_back(self) -> None:
        self.is_away = False
        self._changed.set()

    def settle(self) -> None:
        """Come back, want what it wanted when it came, and answer everything."""
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
        for link in list(self._others):
            link.close()

    def send(self, packet: bytes) -> None:
        if self.link is not None:
            self.link.send(packet)

    async def _come_to(self, nodes: Sequence[Node]) -> bool:
        old, links = self.link, list[Link]()
        if old is not None:
            old.received = _ignore
        if self.turns:
            self.terms = self.stage.random.choice(self.turns)
        try:
            await asyncio.gather(*(self._begin(node, links) for node in nodes))
            if len(links) > 1:
                await holds_within(RUSH_MAX_S, lambda: sum(link.is_open for link in links) <= 1)
        except asyncio.CancelledError:
            for link in links:
                link.close()
            raise
        finally:
            if not all(link.present for link in links):
                for part in (self.sending, self.subscribing, self.taking):
                    part.forget()
            left = [link for link in links if link.is_open]
            if not left and old is not None:
                old.close()
        if left:
            self._go_on_with(left.pop(), *left, *([] if old is None else [old]))
        return self.link is not None

    def _go_on_with(self, link: Link, *others: Link) -> None:
        """It is for the nodes to close the others."""
        for other in others:
            if other.is_open:
                other.received = _ignore
                other.listen()
                self._others[other] = None
        self.link, self.node = link, link.node
        for part in (self.sending, self.subscribing, self.taking):
            part.began()
        link.listen()

    async def _begin(self, node: Node, links: list[Link]) -> None:
        """One connection more, if the node says yes."""
        terms, stage = self.terms, self.stage
        link = Link(next(stage.connections), node.name, terms.version, self._received, self._closed)
        link.uses_aliases = terms.aliases > 0
        will = self._next_will()
        stage.record(
            Asked(
                stage.now(), self.name, link.number, node.name, terms.lasts, terms.is_clean_start,
                terms.version, terms.expiry_s, will, terms.packet_max,
            )
        )  # fmt: skip
        connack = await link.open(node.address, connect(self.name, terms, will), self.patience_s)
        if connack is None:
            return
        if connack.reason:
            stage.record(Refused(stage.now(), self.name, link.number, connack.reason))
            return
        link.present = bool(connack.session_present)
        stage.record(Connected(stage.now(), self.name, link.number, link.present))
        links.append(link)

    async def _begun(self) -> Link:
        """At whatever node says yes."""
        links: list[Link] = []
        while True:
            await self._begin(self._chosen(()), links)
            if links:
                return links[0]
            await asyncio.sleep(RETRY_S)

    def _fall_silent(self) -> None:
        """Nothing leaves any more by a connection that it ended itself."""
        self.sending.moved()
        self.taking.ended()

    def _disconnect(self, link: Link, with_will: bool = False, ends: bool = False, expiry_s: int = -1) -> None:
        self.stage.record(Disconnected(self.stage.now(), self.name, link.number, with_will, ends, expiry_s))
        expiry_s = 0 if ends else expiry_s
        reason = WITH_WILL if with_will else 0 if expiry_s >= 0 else None
        properties: wire.Properties | None = None if expiry_s < 0 else [(wire.SESSION_EXPIRY, expiry_s)]
        link.end(wire.disconnect(self.terms.version, reason, properties))

    def _chosen(self, nodes: tuple[Node, ...]) -> Node:
        """Another than it is connected to, if there is one."""
        found = list(nodes or self.stage.nodes())
        others = [node for node in found if node.name != self.node]
        return self.stage.random.choice(others if self.link is not None and others else found)

    def _next_will(self) -> Will | None:
        if self.will is None:
            return None
        self._wills += 1
        delay_s = self.will.delay_s if self.terms.version == wire.V5 else 0.0
        return self.will._replace(number=self._wills, delay_s=delay_s)

    def _received(self, packet: wire.Packet) -> None:
        if packet.kind in (wire.PUBLISH, wire.PUBREL):
            self.taking.received(packet)
        elif packet.kind in (wire.SUBACK, wire.UNSUBACK):
            self.subscribing.received(packet)
        else:
            self.sending.received(packet)

    def _closed(self, link: Link, by_server: bool, reason: int) -> None:
        self.stage.record(Closed(self.stage.now(), self.name, link.number, by_server, reason))
        self._others.pop(link, None)
        if link is self.link:
            self.link = None
            self.sending.ended()
            self.taking.ended()
            self._changed.set()


def connect(name: str, terms: Terms, will: Will | None = None) -> bytes:
    properties: list[tuple[int, wire.Value]] = [(wire.RECEIVE_MAXIMUM, terms.receive_maximum)]
    if terms.packet_max:
        properties.append((wire.MAXIMUM_PACKET_SIZE, terms.packet_max))
    if terms.aliases:
        properties.append((wire.TOPIC_ALIAS_MAXIMUM, terms.aliases))
    if terms.lasts and terms.version == wire.V5:
        properties.append((wire.SESSION_EXPIRY, int(terms.expiry_s)))
    last_words = None
    if will is not None:
        message = Message(f"{name}!", will.number)
        its = message.properties()
        if will.delay_s:
            its.append((wire.WILL_DELAY, int(will.delay_s)))
        last_words = wire.Will(will.topic, message.payload(), will.qos, will.retain, its)
    return wire.connect(
        terms.version,
        name,
        clean=terms.is_clean_start,
        keep_alive_s=KEEP_ALIVE_S,
        properties=properties,
        will=last_words,
        user_name=terms.user.encode() or None,
    )


def _ignore(packet: wire.Packet) -> None:
    """An older connection of a client that has a newer one."""
