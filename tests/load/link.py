"""One MQTT connection over asyncio, and nothing done by itself but keep-alive: what is sent, and what comes.

Packets are those of conformance/wire.py, built from the specification alone. A node that was stopped accepts
connections and says nothing: whoever isn't answered within SILENT_MAX_S closes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final, cast

from conformance import wire

CONNECT_MAX_S: Final = 2.0
SILENT_MAX_S: Final = 3.0
PING_EVERY_S: Final = 1.0
KEEP_ALIVE_S: Final = 10
PINGS_PER_KEEP_ALIVE: Final = 5
"""Of so many times in which it could ping, it does once, whatever it has heard."""


class Link(asyncio.Protocol):
    """`received(packet)` for all but CONNACK and PINGRESP, from `listen` on; `ended(link, by_server, reason)` once."""

    def __init__(
        self,
        number: int,
        node: str,
        version: int,
        received: Callable[[wire.Packet], None],
        ended: Callable[[Link, bool, int], None],
    ) -> None:
        self.number = number
        self.node = node
        self.present = False
        """Whether its node had a session."""
        self.version = version
        self.received = received
        self.uses_aliases = False
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._early: list[wire.Packet] | None = []
        """What came close behind CONNACK."""
        self._connack: asyncio.Future[wire.Packet] = self._loop.create_future()
        self._heard_at = 0.0
        self._closed_by_us = False
        self._reason = -1
        self._pinging: asyncio.TimerHandle | None = None
        self._unpinged = 0
        self._aliases_max = 0
        """What the node takes."""
        self._aliases: dict[str, int] = {}
        self._topics: dict[int, bytes] = {}
        """By the node's aliases."""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def open(
        self, address: tuple[str, int], connect: bytes, patience_s: float = SILENT_MAX_S
    ) -> wire.Packet | None:
        """What the node answers to CONNECT; unless it is a yes, the connection is closed. None without an answer."""
        try:
            async with asyncio.timeout(CONNECT_MAX_S):
                await self._loop.create_connection(lambda: self, *address)
            self.send(connect)
            async with asyncio.timeout(patience_s):
                connack = await self._connack
        except (OSError, TimeoutError):
            self.close()
            return None
        except asyncio.CancelledError:
            self.close()
            raise
        if connack.reason:
            self.close()
        else:
            self._heard_at = self._loop.time()
            self._aliases_max = cast(int, connack.value(wire.TOPIC_ALIAS_MAXIMUM) or 0)
            self._pinging = self._loop.call_later(PING_EVERY_S, self._ping)
        return connack

    def listen(self) -> None:
        """Whoever connected is ready for what comes."""
        early, self._early = self._early or [], None
        for packet in early:
            self.received(packet)

    def shortened(self, topic: str) -> tuple[str, int]:
        """The topic, and an alias for it, or 0; no topic, where the node knows the alias: who allows aliases uses
        them."""
        if not self.uses_aliases or self.version != wire.V5:
            return topic, 0
        if topic in self._aliases:
            return "", self._aliases[topic]
        if len(self._aliases) >= self._aliases_max:
            return topic, 0
        self._aliases[topic] = len(self._aliases) + 1
        return topic, self._aliases[topic]

    def lengthened(self, packet: wire.Packet) -> bool:
        """Its topic is what its alias says. Whether that was known."""
        alias = cast(int | None, packet.value(wire.TOPIC_ALIAS)) if packet.properties else None
        if alias is not None and packet.topic:
            self._topics[alias] = packet.topic
        elif alias is not None:
            packet.topic = self._topics.get(alias, b"")
        return packet.topic != b""

    def send(self, packet: bytes) -> None:
        if self._transport is not None:
            self._transport.write(packet)

    def end(self, disconnect: bytes) -> None:
        """In order: DISCONNECT is the last that the node hears."""
        self._closed_by_us = True
        if self._transport is not None:
            self._transport.write(disconnect)
            self._transport.close()
            self._loop.call_later(SILENT_MAX_S, self._transport.abort)  # if nobody takes it

    def close(self) -> None:
        """At once, without a word: what was sent may have left, or not."""
        self._closed_by_us = True
        if self._transport is not None:
            self._transport.abort()

    # asyncio's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._buffer += data
        at = 0
        while (packet := _packet_at(self._buffer, at)) is not None:
            at, first, body = packet
            self._take(wire.parsed(self.version, first, body))
        del self._buffer[:at]

    def connection_lost(self, error: Exception | None) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        if not self._connack.done():
            self._connack.set_exception(ConnectionError("closed before CONNACK"))
            self._connack.exception()  # whoever awaits it may have given up
        self._ended(self, not self._closed_by_us, self._reason)

    def _take(self, packet: wire.Packet) -> None:
        if packet.kind == wire.CONNACK:
            if not self._connack.done():
                self._connack.set_result(packet)
        elif packet.kind == wire.DISCONNECT:
            self._reason = packet.reason
        elif packet.kind == wire.PINGRESP:
            return
        elif self._early is not None:
            self._early.append(packet)
        else:
            self.received(packet)

    def _ping(self) -> None:
        """Unless it has just heard the node; now and then all the same, for the node wants to hear the client."""
        silent_s = self._loop.time() - self._heard_at
        if silent_s > SILENT_MAX_S:
            self.close()
            return
        self._unpinged += 1
        if silent_s >= PING_EVERY_S or self._unpinged >= PINGS_PER_KEEP_ALIVE:
            self._unpinged = 0
            self.send(wire.PING)
        self._pinging = self._loop.call_later(PING_EVERY_S, self._ping)


def _packet_at(buffer: bytearray, at: int) -> tuple[int, int, bytes] | None:
    """(where it ends, first byte, body), or None if it isn't whole."""
    length = shift = 0
    for i in range(at + 1, min(at + 5, len(buffer))):
        length |= (buffer[i] & 0x7F) << shift
        shift += 7
        if buffer[i] < 0x80:
            end = i + 1 + length
            return None if end > len(buffer) else (end, buffer[at], bytes(buffer[i + 1 : end]))
    return None


def acknowledgement(kind: int, packet_id: int) -> bytes:
    """Of success, without properties."""
    return struct.pack("!BBH", kind << 4 | (2 if kind == wire.PUBREL else 0), 2, packet_id)
