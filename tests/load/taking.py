"""What a client takes of what comes to it. A message comes to the application in the moment in which the client answers
it, which may be later, or never: until then it isn't written down as delivered. A QoS 2 packet that comes again under
a packet id that isn't released is answered, and not taken again.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from conformance import wire
from load.history import KEPT, Delivered, Message, Overstepped
from load.link import acknowledgement

if TYPE_CHECKING:
    from load.player import Player

_THE_NODES_OWN: Final = (wire.SUBSCRIPTION_ID, wire.MESSAGE_EXPIRY, wire.TOPIC_ALIAS)
"""Properties that nodes may change, or set."""


class Taking:
    def __init__(self, player: Player) -> None:
        self.deliveries = 0
        self.answers_after_s = 0.0
        """QoS 1 and 2; infinity: never, until it settles."""
        self.heard: Callable[[Delivered], None] | None = None
        """Told of each delivery."""
        self._player = player
        self._unreleased: dict[int, None] = {}
        self._open: dict[int, None] = {}
        """Packet ids that came by this connection, until their last answer."""
        self._unanswered: dict[tuple[int, bytes], None] = {}
        """QoS and payloads of what came by earlier connections of the session, and wasn't taken."""
        self._held: deque[tuple[wire.Packet, float]] = deque()
        """With when they came. In the order in which they came, which is that of their answers."""
        self._answering: asyncio.TimerHandle | None = None

    @property
    def held(self) -> int:
        """Messages that came, and aren't answered."""
        return len(self._held)

    def forget(self) -> None:
        self._unreleased.clear()
        self._unanswered.clear()

    def began(self) -> None:
        self.ended()

    def ended(self) -> None:
        """What wasn't answered comes again, or never came."""
        self._unanswered.update(((packet.qos, packet.payload), None) for packet, _ in self._held)
        self._held.clear()
        self._open.clear()
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
            self._open.pop(packet.packet_id, None)
            self._player.send(acknowledgement(wire.PUBCOMP, packet.packet_id))
            return
        self._check(packet)
        if packet.qos and self.answers_after_s:
            self._held.append((packet, self._player.stage.now()))
            if self._answering is None and self.answers_after_s < math.inf:
                self._answering = asyncio.get_running_loop().call_later(self.answers_after_s, self._answer_all)
        else:
            self._take(packet, self._player.stage.now())

    def _answer_all(self) -> None:
        self._answering = None
        while self._held:
            self._take(*self._held.popleft())

    def _take(self, packet: wire.Packet, came_at: float) -> None:
        if packet.payload and (packet.qos < 2 or packet.packet_id not in self._unreleased):
            self._deliver(packet, came_at)
        if packet.qos == 1:
            self._open.pop(packet.packet_id, None)
            self._player.send(acknowledgement(wire.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self._unreleased[packet.packet_id] = None
            self._player.send(acknowledgement(wire.PUBREC, packet.packet_id))

    def _check(self, packet: wire.Packet) -> None:
        """What a node may send on this connection."""
        terms, link = self._player.terms, self._player.link
        assert link is not None
        if not link.lengthened(packet):
            self._overstepped("a topic alias that it hasn't set")
        if 0 < terms.packet_max < packet.size:
            self._overstepped(f"{packet.size} bytes, of {terms.packet_max} that are allowed")
        if packet.qos:
            if packet.packet_id in self._open:
                self._overstepped(f"packet id {packet.packet_id}, which is in use")
            self._open[packet.packet_id] = None
            if len(self._open) > terms.receive_maximum and terms.version == wire.V5:
                self._overstepped(f"{len(self._open)} messages at once, of {terms.receive_maximum} that are allowed")

    def _overstepped(self, what: str) -> None:
        player = self._player
        assert player.link is not None
        player.stage.record(Overstepped(player.stage.now(), player.name, player.link.number, player.node, what))

    def _deliver(self, packet: wire.Packet, came_at: float) -> None:
        player = self._player
        assert player.link is not None
        publisher, number = message = Message.of(packet.payload)
        is_repeat = self._unanswered.pop((packet.qos, packet.payload), 0) is None
        self.deliveries += 1
        identifiers = packet.values(wire.SUBSCRIPTION_ID) if packet.properties else []
        now = player.stage.now()
        delivered = Delivered(
            now, player.name, player.link.number, publisher, number,
            packet.topic.decode(), packet.qos, packet.dup, packet.retain, player.subscribing.named(identifiers),
            len(packet.payload) if packet.payload == message.payload(len(packet.payload)) else -1,
            _expiry_s(packet), _kept(message, packet), is_repeat, tuple(cast(list[int], identifiers)), now - came_at,
        )  # fmt: skip
        player.stage.record(delivered)
        if self.heard is not None:
            self.heard(delivered)


def _kept(message: Message, packet: wire.Packet) -> str:
    """What a node passes on; of user properties the order counts."""
    passed = [(name, value) for name, value in packet.properties if name not in _THE_NODES_OWN]
    if not passed:
        return ""
    sent = message.properties()
    pairs = [value for name, value in passed if name == wire.USER_PROPERTY]
    is_kept = pairs == [value for name, value in sent if name == wire.USER_PROPERTY]
    return KEPT if is_kept and sorted(passed, key=repr) == sorted(sent, key=repr) else repr(passed)


def _expiry_s(packet: wire.Packet) -> int:
    expiry_s = packet.value(wire.MESSAGE_EXPIRY) if packet.properties else None
    return -1 if expiry_s is None else cast(int, expiry_s)
