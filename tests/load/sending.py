"""What a client publishes, one number after another, as MQTT asks of it: while its session is there it sends again what
isn't acknowledged, under the same packet ids and in order; without one it forgets it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from conformance import wire
from load.history import Acknowledged, Message, Published, PublishRefused
from load.link import acknowledgement

if TYPE_CHECKING:
    from load.player import Player

WINDOW_MESSAGES: Final = 16
PACKET_ID_MAX: Final = 32_767
"""Those above are for what it subscribes to."""


class Publication(NamedTuple):
    """What is to be published."""

    topic: str
    """Where it is to come."""
    qos: int = 1
    retain: bool = False
    clears: bool = False
    """With an empty payload, which ends what is retained there."""
    expiry_s: int = -1
    delay_s: int = -1
    """So long after it was published, by $delayed."""
    size: int = 0
    """Of its payload, at least."""
    has_properties: bool = False
    """Those of `Message.properties`; before MQTT 5 none."""


class Pending:
    """A message under way."""

    __slots__ = ("answered", "is_received", "number", "publication")

    def __init__(self, number: int, publication: Publication) -> None:
        self.number = number
        self.publication = publication
        self.is_received = False
        """PUBREC came: PUBREL is what is sent again."""
        self.answered: asyncio.Future[bool] | None = None
        """Whether it was acknowledged; False where it was refused, or is forgotten."""

    def answer(self, is_yes: bool) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(is_yes)


class Sending:
    def __init__(self, player: Player) -> None:
        self.acknowledged = 0
        self.refused = 0
        self._player = player
        self._number = 0
        self._packet_id = 0
        self._pending: dict[int, Pending] = {}
        self._room = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Nothing is under way."""
        return not self._pending

    @property
    def has_room(self) -> bool:
        """It is connected, and may send one more message."""
        return self._room.is_set()

    async def room(self) -> None:
        """Returns when there is."""
        while not self._room.is_set():  # it may be gone again when its turn comes
            await self._room.wait()

    def publish(self, publication: Publication) -> Pending:
        """Only where there is room; not awaited."""
        self._number += 1
        pending = Pending(self._number, publication)
        packet_id = 0
        if publication.qos:
            packet_id = self._next_packet_id()
            self._pending[packet_id] = pending
        self._send(packet_id, pending, again=False)
        self.moved()
        return pending

    async def published(self, publication: Publication, patience_s: float) -> bool:
        """Whether it was acknowledged in time; a later acknowledgement may still come."""
        try:
            async with asyncio.timeout(patience_s):
                await self.room()
                pending = self.publish(publication)
                pending.answered = asyncio.get_running_loop().create_future()
                return await pending.answered
        except TimeoutError:
            return False

    def forget(self) -> None:
        for pending in self._pending.values():
            pending.answer(False)
        self._pending.clear()

    def began(self) -> None:
        for packet_id, pending in self._pending.items():
            if pending.is_received:
                self._player.send(acknowledgement(wire.PUBREL, packet_id))
            else:
                self._send(packet_id, pending, again=True)
        self.moved()

    def ended(self) -> None:
        if not self._player.terms.lasts:
            self.forget()  # its session is over, and nobody will ever know
        self.moved()

    def moved(self) -> None:
        """There may be room now, or none any more."""
        if self._player.is_connected and len(self._pending) < WINDOW_MESSAGES:
            self._room.set()
        else:
            self._room.clear()

    def received(self, packet: wire.Packet) -> None:
        """PUBACK, PUBREC or PUBCOMP."""
        pending = self._pending.get(packet.packet_id)
        if pending is None:
            return
        kind, player, stage = packet.kind, self._player, self._player.stage
        if kind != wire.PUBCOMP and not pending.is_received:
            if packet.reason < 0x80:
                self.acknowledged += 1
                stage.record(Acknowledged(stage.now(), player.name, pending.number))
            else:
                self.refused += 1
                stage.record(PublishRefused(stage.now(), player.name, pending.number, packet.reason))
            pending.answer(packet.reason < 0x80)
        if kind == wire.PUBREC and packet.reason < 0x80:
            pending.is_received = True
            player.send(acknowledgement(wire.PUBREL, packet.packet_id))
        else:
            del self._pending[packet.packet_id]
        self.moved()

    def _send(self, packet_id: int, pending: Pending, *, again: bool) -> None:
        player, publication = self._player, pending.publication
        assert player.link is not None
        message = Message(player.name, pending.number)
        has_properties = publication.has_properties and player.terms.version == wire.V5
        player.stage.record(
            Published(
                player.stage.now(), player.name, player.link.number, pending.number, publication.topic, publication.qos,
                again, publication.retain, publication.clears, publication.expiry_s, publication.delay_s,
                publication.size, has_properties,
            )
        )  # fmt: skip
        topic = publication.topic if publication.delay_s < 0 else f"$delayed/{publication.delay_s}/{publication.topic}"
        payload = b"" if publication.clears else message.payload(publication.size)
        properties = message.properties() if has_properties else []
        if publication.expiry_s >= 0:
            properties.append((wire.MESSAGE_EXPIRY, publication.expiry_s))
        topic, alias = player.link.shortened(topic)
        if alias:
            properties.append((wire.TOPIC_ALIAS, alias))
        player.link.send(
            wire.publish(
                player.terms.version, topic, payload, qos=publication.qos, packet_id=packet_id or None,
                retain=publication.retain, dup=again, properties=properties,
            )
        )  # fmt: skip

    def _next_packet_id(self) -> int:
        while True:
            self._packet_id = self._packet_id % PACKET_ID_MAX + 1
            if self._packet_id not in self._pending:
                return self._packet_id
