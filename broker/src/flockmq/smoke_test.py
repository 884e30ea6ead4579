"""A smoke test of a cluster: it sends one message from a client on one node to a subscriber on another."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from flockmq.config.values import Address
from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import Connect, SubscribeEntry

CHECK_TIMEOUT_S: Final = 10.0
PUBLISH_EVERY_S: Final = 0.05
"""A new route reaches other nodes shortly after the SUBACK, so the message is repeated until one arrives."""


class Crossing(NamedTuple):
    """The message that arrived."""

    topic: str
    payload: str
    seconds: float
    """From the publisher's write to the subscriber's read."""


async def check_crossing(publisher: Address, subscriber: Address) -> Crossing:
    """Subscribe at one address, publish at the other. Raises OSError or TimeoutError if nothing arrives."""
    topic = f"flockmq/dev/{secrets.token_hex(4)}"
    sent_at: dict[str, float] = {}
    async with asyncio.timeout(CHECK_TIMEOUT_S), _connected(subscriber) as inbox, _connected(publisher) as outbox:
        inbox.send(encode.subscribe(frame.V311, 1, [SubscribeEntry(topic.encode(), 0)]))
        await inbox.expect(frame.SUBACK)
        arrival = asyncio.ensure_future(inbox.expect(frame.PUBLISH))
        try:
            while not arrival.done():
                payload = f"hello {len(sent_at) + 1}"
                sent_at[payload] = time.perf_counter()
                outbox.send(encode.publish(frame.V311, topic.encode(), payload.encode()))
                await asyncio.wait([arrival], timeout=PUBLISH_EVERY_S)
        finally:
            arrival.cancel()
        body = arrival.result()
    received = body[2 + len(topic) :].decode()
    return Crossing(topic, received, inbox.read_at - sent_at[received])


class _Client:
    """A minimal MQTT 3.1.1 client: it writes packets, and waits for a packet of one type."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.read_at = 0.0

    def send(self, packet: bytes) -> None:
        """Raises ConnectionError."""
        if self._writer.is_closing():  # uvloop's write would raise RuntimeError
            raise ConnectionResetError("the connection was lost")
        self._writer.write(packet)

    async def expect(self, packet_type: int) -> bytes:
        """Read the next packet, which must be of this type, and return its body. Raises ConnectionError."""
        head = await self._reader.readexactly(2)
        self.read_at = time.perf_counter()
        while head[-1] & 0x80:
            head += await self._reader.readexactly(1)
        length, _ = frame.remaining_length(head, 1)
        if head[0] >> 4 != packet_type:
            raise ConnectionError(f"expected a packet of type {packet_type}, got {head[0] >> 4}")
        return await self._reader.readexactly(length)


@contextlib.asynccontextmanager
async def _connected(address: Address) -> AsyncIterator[_Client]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        client = _Client(reader, writer)
        client.send(encode.connect(Connect(frame.V311, f"flockmq-dev-{secrets.token_hex(4)}".encode())))
        answer = await client.expect(frame.CONNACK)
        if answer[1] != 0:
            raise ConnectionError(f"{address} refused the connection with code {answer[1]}")
        yield client
        client.send(frame.frame(frame.DISCONNECT << 4, b""))
        await writer.drain()
    finally:
        writer.close()
