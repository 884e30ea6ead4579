"""A client that publishes, one number after another, and keeps what MQTT asks of it: while its session is there it
sends again what isn't acknowledged, under the same packet ids and in order; without one it forgets it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from conformance import wire
from load.client import Link, acknowledgement
from load.history import Acknowledged, Message, Published
from load.player import WINDOW_MESSAGES, Player, Stage

TOPICS: Final = 2
"""Of each publisher and QoS."""
BACKLOG_MAX_S: Final = 10.0
"""What it would have sent in so many seconds it sends as soon as it may, if something held it up."""


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
    """To topics below `root`, at each QoS of `qos` in turn, `rate` messages a second in all, by chance or steadily."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        *,
        lasts: bool,
        rate: float,
        root: str = "load",
        qos: tuple[int, ...] = (1, 2),
        steady: bool = False,
    ) -> None:
        super().__init__(stage, name, lasts=lasts)
        self.acknowledged = 0
        self.refused = 0
        self._root = root
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

    @property
    def is_settled(self) -> bool:
        """Nothing is under way."""
        return self._idle.is_set()

    async def stop(self) -> None:
        """Send nothing new; returns when nothing is under way."""
        self._is_stopped = True
        self._moved()
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
        now = asyncio.get_running_loop().time
        due = now()
        while True:
            await asyncio.sleep(due - now())
            await self._room.wait()
            self._number += 1
            topic, qos = self._topic_of(self._number)
            pending = Pending(self._number, topic, qos)
            packet_id = self._next_packet_id() if qos else 0
            if qos:
                self._pending[packet_id] = pending
            self._publish(packet_id, pending, again=False)
            self._moved()
            due += 1 / self._rate if self._steady else self.stage.random.expovariate(self._rate)
            due = max(due, now() - BACKLOG_MAX_S)

    def _topic_of(self, number: int) -> tuple[str, int]:
        turn, which = divmod(number, len(self._qos))
        return f"{self._root}/{self.name}/{self._qos[which]}/{turn % TOPICS}", self._qos[which]

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
