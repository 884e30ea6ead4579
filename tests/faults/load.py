"""Clients that publish, subscribe, come back to any node that answers, and write down what they see.

Each keeps what MQTT asks of a client: a publisher whose session is still there sends again what isn't acknowledged,
under the same packet ids and in order; without a session it forgets it. A subscriber answers a QoS 2 packet id that
isn't released without taking the message again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from conformance import wire
from faults.client import Link, Refused, acknowledgement
from faults.history import (
    Acknowledged,
    AnyEvent,
    Asked,
    Closed,
    Connected,
    Delivered,
    Message,
    Published,
    Subscribed,
    Unsubscribed,
)

WINDOW_MESSAGES: Final = 16
RETRY_S: Final = 0.1
RESUBSCRIBE_S: Final = 0.5
CHURN_S: Final = (0.2, 2.0)
ROVE_S: Final = (2.0, 6.0)
TOPICS: Final = 2
"""Of each publisher and QoS."""


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


class Pending:
    """A message under way from a publisher."""

    __slots__ = ("number", "qos", "received", "topic")

    def __init__(self, number: int, topic: str, qos: int) -> None:
        self.number = number
        self.topic = topic
        self.qos = qos
        self.received = False
        """PUBREC came: PUBREL is what is sent again."""


class Publisher(Player):
    """At each QoS of `qos` in turn, `rate` messages a second in all, at random times or steadily."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        *,
        lasts: bool,
        rate: float,
        qos: tuple[int, ...] = (1, 2),
        steady: bool = False,
    ) -> None:
        super().__init__(stage, name, lasts=lasts)
        self.acknowledged = 0
        self.refused = 0
        self._rate = rate
        self._qos = qos
        self._steady = steady
        self._number = 0
        self._packet_id = 0
        self._pending: dict[int, Pending] = {}
        self._is_stopped = False
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        sending = asyncio.ensure_future(self._send_all())
        try:
            await super().run()
        finally:
            sending.cancel()

    async def stop(self) -> None:
        """Send nothing new; returns when nothing is under way."""
        self._is_stopped = True
        await self._idle.wait()

    def began(self, present: bool) -> None:
        if not present:
            self._pending.clear()
        for packet_id, pending in self._pending.items():
            if pending.received:
                self._send(acknowledgement(wire.PUBREL, packet_id))
            else:
                self._publish(packet_id, pending, again=True)
        self._moved()

    def received(self, packet: wire.Packet) -> None:
        pending = self._pending.get(packet.packet_id)
        if pending is None:
            return
        if packet.kind in (wire.PUBACK, wire.PUBREC) and not pending.received:
            if packet.reason >= 0x80:
                self.refused += 1
                del self._pending[packet.packet_id]
            else:
                self.acknowledged += 1
                self.stage.record(Acknowledged(self.stage.now(), self.name, pending.number))
        if packet.kind == wire.PUBREC and packet.reason < 0x80:
            pending.received = True
            self._send(acknowledgement(wire.PUBREL, packet.packet_id))
        elif packet.kind in (wire.PUBACK, wire.PUBCOMP):
            self._pending.pop(packet.packet_id, None)
        self._moved()

    async def _send_all(self) -> None:
        while True:
            await self._room.wait()
            self._number += 1
            topic, qos = self._topic_of(self._number)
            pending = Pending(self._number, topic, qos)
            packet_id = self._next_packet_id() if qos else 0
            if qos:
                self._pending[packet_id] = pending
            self._publish(packet_id, pending, again=False)
            self._moved()
            await asyncio.sleep(1 / self._rate if self._steady else self.stage.random.expovariate(self._rate))

    def _topic_of(self, number: int) -> tuple[str, int]:
        turn, which = divmod(number, len(self._qos))
        return f"load/{self.name}/{self._qos[which]}/{turn % TOPICS}", self._qos[which]

    def _next_packet_id(self) -> int:
        while True:
            self._packet_id = self._packet_id % 65_535 + 1
            if self._packet_id not in self._pending:
                return self._packet_id

    def _publish(self, packet_id: int, pending: Pending, *, again: bool) -> None:
        assert self.link is not None
        number, topic, qos = pending.number, pending.topic, pending.qos
        self.stage.record(Published(self.stage.now(), self.name, self.link.number, number, topic, qos, again))
        payload = Message(self.name, number).payload()
        self._send(wire.publish(wire.V5, topic, payload, qos=qos, packet_id=packet_id or None, dup=again))

    def _send(self, packet: bytes) -> None:
        if self.link is not None:
            self.link.send(packet)

    def _closed(self, link: Link, by_server: bool, reason: int) -> None:
        super()._closed(link, by_server, reason)
        if not self.lasts and self.link is None:
            self._pending.clear()  # its session is over, and nobody will ever know
        self._moved()

    def _moved(self) -> None:
        if self.link is not None and not self._is_stopped and len(self._pending) < WINDOW_MESSAGES:
            self._room.set()
        else:
            self._room.clear()
        if self._pending:
            self._idle.clear()
        else:
            self._idle.set()


class Subscriber(Player):
    """`churns`: it takes its subscriptions back and makes them anew all the time; `roves`: it comes to another node
    while its older connection is still open."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        filters: Sequence[tuple[str, int]],
        *,
        lasts: bool,
        churns: bool = False,
        roves: bool = False,
    ) -> None:
        super().__init__(stage, name, lasts=lasts)
        self.deliveries = 0
        self._wanted = dict(filters)
        self._filters = dict(filters)
        self.churns = churns
        self._roves = roves
        self._held: set[str] = set()
        """Filters that the session has, or may have."""
        self._asked: dict[int, str] = {}
        self._packet_id = 0
        self._unreleased: set[int] = set()

    async def run(self) -> None:
        habits = [habit() for habit, has in ((self._churn, self.churns), (self._rove, self._roves)) if has]
        tasks = [asyncio.ensure_future(habit) for habit in habits]
        try:
            await super().run()
        finally:
            for task in tasks:
                task.cancel()

    @property
    def is_settled(self) -> bool:
        """Connected, and all that is wanted is subscribed."""
        return self.link is not None and not self._asked and self._held == set(self._wanted)

    def settle(self) -> None:
        """Want everything, and change no more."""
        self.churns = self._roves = False
        self._wanted = dict(self._filters)
        self._ask()

    def began(self, present: bool) -> None:
        self._held -= set(self._asked.values())  # nobody will tell whether they were done
        self._asked.clear()
        if not present:
            self._held.clear()
            self._unreleased.clear()
        self._ask()

    def received(self, packet: wire.Packet) -> None:
        if packet.kind == wire.PUBLISH:
            self._published(packet)
        elif packet.kind == wire.PUBREL:
            self._unreleased.discard(packet.packet_id)
            self._send(acknowledgement(wire.PUBCOMP, packet.packet_id))
        elif packet.kind in (wire.SUBACK, wire.UNSUBACK):
            self._answered(packet)

    def _published(self, packet: wire.Packet) -> None:
        assert self.link is not None
        if packet.qos < 2 or packet.packet_id not in self._unreleased:
            message = Message.of(packet.payload)
            self.deliveries += 1
            self.stage.record(
                Delivered(
                    self.stage.now(), self.name, self.link.number, message.publisher, message.number,
                    packet.topic.decode(), packet.qos, packet.dup, packet.retain,
                )
            )  # fmt: skip
        if packet.qos == 1:
            self._send(acknowledgement(wire.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self._unreleased.add(packet.packet_id)
            self._send(acknowledgement(wire.PUBREC, packet.packet_id))

    def _answered(self, packet: wire.Packet) -> None:
        filter = self._asked.pop(packet.packet_id, None)
        if filter is None or self.link is None:
            return
        if packet.kind == wire.UNSUBACK:
            if packet.reason < 0x80:
                self._held.discard(filter)
        elif packet.reason < 0x80:
            self._held.add(filter)
            qos = self._filters[filter]
            self.stage.record(Subscribed(self.stage.now(), self.name, self.link.number, filter, qos))
        if packet.reason < 0x80:
            self._ask()
        else:
            asyncio.get_running_loop().call_later(RESUBSCRIBE_S, self._ask)

    def _ask(self) -> None:
        """For whatever is wanted and not there, or there and not wanted; one question a filter at a time."""
        if self.link is None:
            return
        under_way = set(self._asked.values())
        for filter, qos in self._filters.items():
            if filter in under_way or (filter in self._wanted) == (filter in self._held):
                continue
            self._packet_id = self._packet_id % 65_535 + 1
            self._asked[self._packet_id] = filter
            if filter in self._wanted:
                self._send(wire.subscribe(wire.V5, self._packet_id, (filter, qos)))
            else:
                self.stage.record(Unsubscribed(self.stage.now(), self.name, filter))
                self._send(wire.unsubscribe(wire.V5, self._packet_id, filter))

    async def _churn(self) -> None:
        while True:
            await asyncio.sleep(self.stage.random.uniform(*CHURN_S))
            if not self.churns:
                return
            filter = self.stage.random.choice(list(self._filters))
            if self._wanted.pop(filter, None) is None:
                self._wanted[filter] = self._filters[filter]
            self._ask()

    async def _rove(self) -> None:
        while True:
            await asyncio.sleep(self.stage.random.uniform(*ROVE_S))
            if not self._roves:
                return
            if self.link is not None and len(self.stage.nodes()) > 1:
                await self.connect(anew=True)

    def _send(self, packet: bytes) -> None:
        if self.link is not None:
            self.link.send(packet)


def _ignore(packet: wire.Packet) -> None:
    """An older connection of a client that has a newer one."""
