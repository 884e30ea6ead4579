"""One MQTT 5 connection over asyncio, and nothing done by itself but keep-alive: what is sent, and what comes.

Packets are those of conformance/wire.py, built from the specification alone. A node that was stopped accepts
connections and says nothing: whoever isn't answered within SILENT_MAX_S closes.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import Callable
from typing import Final, cast

from conformance import wire

CONNECT_MAX_S: Final = 2.0
SILENT_MAX_S: Final = 3.0
PING_EVERY_S: Final = 1.0
SESSION_EXPIRY_S: Final = 3600

_numbers = itertools.count(1)


class Refused(Exception):
    """No CONNACK that says yes."""


class Link(asyncio.Protocol):
    """`received(packet)` for all but CONNACK and PINGRESP, from `listen` on; `ended(link, by_server, reason)` once."""

    def __init__(self, received: Callable[[wire.Packet], None], ended: Callable[[Link, bool, int], None]) -> None:
        self.number = next(_numbers)
        self.received = received
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._early: list[wire.Packet] | None = []
        """What came close behind CONNACK."""
        self._connack: asyncio.Future[wire.Packet] = asyncio.get_running_loop().create_future()
        self._heard_at = 0.0
        self._closed_by_us = False
        self._reason = -1
        self._pinging: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def connect(
        self, address: tuple[str, int], client: str, *, lasts: bool, clean_start: bool, receive_maximum: int
    ) -> bool:
        """Whether a session was present. Raises Refused; the connection is closed then."""
        loop = asyncio.get_running_loop()
        properties: list[tuple[int, wire.Value]] = [(wire.RECEIVE_MAXIMUM, receive_maximum)]
        if lasts:
            properties.append((wire.SESSION_EXPIRY, SESSION_EXPIRY_S))
        try:
            async with asyncio.timeout(CONNECT_MAX_S):
                transport, _ = await loop.create_connection(lambda: self, *address)
                sock = transport.get_extra_info("socket")
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.send(wire.connect(wire.V5, client, clean=clean_start, keep_alive_s=10, properties=properties))
            async with asyncio.timeout(SILENT_MAX_S):
                connack = await self._connack
        except (OSError, TimeoutError) as error:
            self.close()
            raise Refused(f"{type(error).__name__}: {error}") from None
        if connack.reason:
            self.close()
            raise Refused(f"reason {connack.reason:#x}")
        self._heard_at = loop.time()
        self._pinging = loop.call_later(PING_EVERY_S, self._ping)
        return bool(connack.session_present)

    def listen(self) -> None:
        """Whoever connected is ready for what comes."""
        early, self._early = self._early or [], None
        for packet in early:
            self.received(packet)

    def send(self, packet: bytes) -> None:
        if self._transport is not None:
            self._transport.write(packet)

    def disconnect(self) -> None:
        """As a client should; a session that lasts stays."""
        self._closed_by_us = True
        self.send(wire.disconnect(wire.V5))
        self.close()

    def close(self) -> None:
        self._closed_by_us = True
        if self._transport is not None:
            self._transport.abort() if self._transport.get_write_buffer_size() else self._transport.close()

    # asyncio's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        self._buffer += data
        at = 0
        while (packet := _packet_at(self._buffer, at)) is not None:
            at, first, body = packet
            self._take(wire.parsed(wire.V5, first, body))
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
        loop = asyncio.get_running_loop()
        if loop.time() - self._heard_at > SILENT_MAX_S:
            self.close()
            return
        self.send(wire.PING)
        self._pinging = loop.call_later(PING_EVERY_S, self._ping)


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
