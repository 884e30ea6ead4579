"""MQTT packet by packet, over asyncio: what a decent client library doesn't let a test see or send."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import NamedTuple, Self

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from integration.broker.conftest import Node

PATIENCE_S = 30.0

CONNACK, PUBLISH, PUBACK, SUBACK, DISCONNECT, AUTH = 0x20, 0x30, 0x40, 0x90, 0xE0, 0xF0
PINGREQ, PINGRESP = 0xC0, 0xD0
KINDS = {CONNACK: PacketTypes.CONNACK, DISCONNECT: PacketTypes.DISCONNECT, AUTH: PacketTypes.AUTH}


class Answer(NamedTuple):
    """`data` and `method` are those of enhanced authentication."""

    kind: int
    reason: int
    data: bytes = b""
    assigned: str = ""


class Will(NamedTuple):
    """QoS 1. With a `delay_s` its session lasts as long, in version 5."""

    topic: str
    delay_s: int = 0


class Ended(Exception):
    """The broker closed the connection."""


class Raw:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self._reader = reader
        self._writer = writer
        self._version = version
        self._packet_id = 0

    @classmethod
    async def open(
        cls, port: int, version: int = 5, host: str | None = None, tls: ssl.SSLContext | None = None
    ) -> Self:
        """`host`: the address to come from."""
        local = None if host is None else (host, 0)
        name = "localhost" if tls else None
        streams = await asyncio.open_connection("127.0.0.1", port, local_addr=local, ssl=tls, server_hostname=name)
        return cls(*streams, version)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """As a broken network does: without DISCONNECT."""
        self._writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    # Sending.

    async def connect(
        self,
        client_id: str = "c",
        username: str | None = None,
        password: str | None = None,
        *,
        clean: bool = True,
        method: str | None = None,
        data: bytes | None = None,
        will: Will | None = None,
    ) -> Answer:
        """CONNECT, and what it is answered with."""
        flags = (0x02 if clean else 0) | (0x80 if username is not None else 0) | (0x40 if password is not None else 0)
        flags |= 0x0C if will is not None else 0
        body = b"\x00\x04MQTT" + bytes([self._version, flags]) + (60).to_bytes(2, "big")
        if self._version == 5:
            body += authentication(PacketTypes.CONNECT, method, data, 0 if will is None else 10 * will.delay_s)
        body += text(client_id)
        if will is not None:
            properties = Properties(PacketTypes.WILLMESSAGE)
            properties.WillDelayInterval = will.delay_s
            body += (properties.pack() if self._version == 5 else b"") + text(will.topic) + text("last words")
        body += text(username) if username is not None else b""
        body += text(password) if password is not None else b""
        self.send(0x10, body)
        return await self.answer()

    def auth(self, reason: int, method: str, data: bytes) -> None:
        self.send(AUTH, bytes([reason]) + authentication(PacketTypes.AUTH, method, data))

    async def publish(self, topic: str, payload: bytes = b"x", *, retain: bool = False) -> int:
        """QoS 1; the reason code of PUBACK."""
        self._packet_id += 1
        packet_id = self._packet_id.to_bytes(2, "big")
        self.send(
            0x33 if retain else 0x32, text(topic) + packet_id + (b"\x00" if self._version == 5 else b"") + payload
        )
        return (await self.answer(PUBACK)).reason

    async def subscribe(self, filter: str, qos: int = 0) -> int:
        """The reason code of SUBACK."""
        self._packet_id += 1
        properties = b"\x00" if self._version == 5 else b""
        self.send(0x82, self._packet_id.to_bytes(2, "big") + properties + text(filter) + bytes([qos]))
        return (await self.answer(SUBACK)).reason

    def send(self, first: int, body: bytes) -> None:
        length, size = len(body), b""
        while True:
            length, digit = divmod(length, 128)
            size += bytes([digit | (0x80 if length else 0)])
            if not length:
                break
        self._writer.write(bytes([first]) + size + body)

    # Receiving.

    async def answer(self, kind: int | None = None) -> Answer:
        """The next packet, or the next of this kind. Raises Ended."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                first, body = await self._packet()
                if kind in (None, first & 0xF0):
                    return self._parsed(first & 0xF0, body)

    async def message(self) -> str:
        """The topic of the next PUBLISH."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                first, body = await self._packet()
                if first & 0xF0 == PUBLISH:
                    return body[2 : 2 + int.from_bytes(body[:2], "big")].decode()

    async def ended(self) -> Answer:
        """DISCONNECT, and then the end."""
        answer = await self.answer(DISCONNECT)
        async with asyncio.timeout(PATIENCE_S):
            assert await self._reader.read() == b""
        return answer

    async def _packet(self) -> tuple[int, bytes]:
        try:
            first = (await self._reader.readexactly(1))[0]
            length = shift = 0
            while True:
                digit = (await self._reader.readexactly(1))[0]
                length |= (digit & 0x7F) << shift
                shift += 7
                if not digit & 0x80:
                    break
            return first, await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Ended from None

    def _parsed(self, kind: int, body: bytes) -> Answer:
        if kind == SUBACK:
            return Answer(kind, body[-1])
        if kind == PUBACK:
            return Answer(kind, body[2] if len(body) > 2 else 0)
        at = 1 if kind == CONNACK else 0
        reason = body[at] if len(body) > at else 0
        if self._version != 5 or len(body) <= at + 1 or kind not in KINDS:
            return Answer(kind, reason)
        properties = Properties(KINDS[kind])
        properties.unpack(body[at + 1 :])
        data = getattr(properties, "AuthenticationData", b"")
        return Answer(kind, reason, data, getattr(properties, "AssignedClientIdentifier", ""))


def text(value: str) -> bytes:
    raw = value.encode()
    return len(raw).to_bytes(2, "big") + raw


def authentication(packet: int, method: str | None, data: bytes | None, expiry_s: int = 0) -> bytes:
    properties = Properties(packet)
    if expiry_s:
        properties.SessionExpiryInterval = expiry_s
    if method is not None:
        properties.AuthenticationMethod = method
    if data is not None:
        properties.AuthenticationData = data
    packed: bytes = properties.pack()
    return packed


async def connects(node: Node, *credentials: str | None, version: int = 5, host: str | None = None) -> int:
    """The reason code of CONNACK; `credentials` as `Raw.connect` takes them."""
    async with await Raw.open(node.mqtt, version, host) as client:
        return (await client.connect(*credentials)).reason
