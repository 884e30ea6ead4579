"""What a client takes of what comes to it. A message comes to the application in the moment in which the client answers
it, which may be later, or never: until then it isn't written down as delivered. A QoS 2 packet that comes again under
a packet id that isn't released is answered, and not taken again.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from conformance import wire
from load.history import Delivered, Message
from load.link import acknowledgement

if TYPE_CHECKING:
    from load.player import Player


class Taking:
    def __init__(self, player: Player) -> None:
        self.deliveries = 0
        self.answers_after_s = 0.0
        """QoS 1 and 2; infinity: never, until it settles."""
        self.heard: Callable[[Delivered], None] | None = None
        """Told of each delivery."""
        self._player = player
        self._unreleased: dict[int, None] = {}
        self._held: deque[wire.Packet] = deque()
        """In the order in which they came, which is that of their answers."""
        self._answering: asyncio.TimerHandle | None = None

    @property
    def held(self) -> int:
        """Messages that came, and aren't answered."""
        return len(self._held)

    def forget(self) -> None:
        self._unreleased.clear()

    def began(self) -> None:
        self.ended()

    def ended(self) -> None:
        """What wasn't answered comes again, or never came."""
        self._held.clear()
        if self._answering is not None:
            self._answering.cancel()
            self._answering = None

    def settle(self) -> None:
        """Answer all, from now on at once."""
        self.answers_after_s = 0.0
        self._answer_all()

    def received(self, packet: wire.Packet) -> None:
        """PUBLISH or PUBREL."""
        if packet.kind == wire.PUBREL:
            self._unreleased.pop(packet.packet_id, None)
            self._player.send(acknowledgement(wire.PUBCOMP, packet.packet_id))
        elif packet.qos and self.answers_after_s:
            self._held.append(packet)
            if self._answering is None and self.answers_after_s < math.inf:
                self._answering = asyncio.get_running_loop().call_later(self.answers_after_s, self._answer_all)
        else:
            self._take(packet)

    def _answer_all(self) -> None:
        self._answering = None
        while self._held:
            self._take(self._held.popleft())

    def _take(self, packet: wire.Packet) -> None:
        if packet.payload and (packet.qos < 2 or packet.packet_id not in self._unreleased):
            self._deliver(packet)
        if packet.qos == 1:
            self._player.send(acknowledgement(wire.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self._unreleased[packet.packet_id] = None
            self._player.send(acknowledgement(wire.PUBREC, packet.packet_id))

    def _deliver(self, packet: wire.Packet) -> None:
        player = self._player
        assert player.link is not None
        publisher, number = Message.of(packet.payload)
        self.deliveries += 1
        filters = player.subscribing.named(packet.values(wire.SUBSCRIPTION_ID)) if packet.properties else ()
        delivered = Delivered(
            player.stage.now(), player.name, player.link.number, publisher, number,
            packet.topic.decode(), packet.qos, packet.dup, packet.retain, filters,
        )  # fmt: skip
        player.stage.record(delivered)
        if self.heard is not None:
            self.heard(delivered)
