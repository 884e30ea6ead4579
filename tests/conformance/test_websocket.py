"""MQTT over WebSocket (section 6): frames are written and read here by hand (RFC 6455)."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator

import pytest

from conformance.statement import statement
from conformance.wire import CONNACK, PINGRESP, PUBACK, PUBLISH, V5, Wire, connect, publish, subscribe
from integration.dev.commands import Commands

KEY = base64.b64encode(os.urandom(16))
TEXT, BINARY, CLOSE, PING_FRAME, PONG_FRAME = 1, 2, 8, 9, 10


@pytest.fixture(scope="module")
def ws_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    commands = Commands()
    try:
        _, ports = commands.start_node(
            *("--data-dir", str(tmp_path_factory.mktemp("node"))),
            environment={"FLOCKMQ_LISTENERS__WS__DEFAULT__BIND": "127.0.0.1:0"},
        )
        yield ports["listeners"]["ws:default"]  # type: ignore[index]
    finally:
        commands.end_all()


class WebSocket(Wire):
    """`write` sends one binary frame; `frame` any."""

    def __init__(self, port: int, version: int, protocols: bytes = b"mqtt") -> None:
        super().__init__(port, version)
        self.socket.sendall(
            b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: %b\r\nSec-WebSocket-Version: 13\r\n"
            % KEY
            + (b"Sec-WebSocket-Protocol: %b\r\n" % protocols if protocols else b"")
            + b"\r\n"
        )
        head = b""
        while b"\r\n\r\n" not in head:
            data = self.socket.recv(65536)
            assert data, f"the connection ended amid {head!r}"
            head += data
        answer, self._frames = head.split(b"\r\n\r\n", 1)
        lines = answer.split(b"\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
        self.closed = False

    def frame(self, kind: int, data: bytes, *, final: bool = True) -> None:
        mask = os.urandom(4)
        first = bytes(((0x80 if final else 0) | kind,))
        size = bytes((0x80 | len(data),)) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        self.socket.sendall(first + size + mask + masked)

    def write(self, data: bytes) -> None:
        self.frame(BINARY, data)

    def read(self) -> bytes:
        """The payload of the next binary frame."""
        while True:
            kind, data = self._next_frame()
            if kind == BINARY:
                return data
            if kind in (CLOSE, -1):
                self.closed = True
                return b""
            assert kind == PONG_FRAME, f"a frame of type {kind}"

    def _next_frame(self) -> tuple[int, bytes]:
        """-1 at the end of the connection."""
        while True:
            held = self._frames
            if len(held) >= 2:
                at, size = 2, held[1] & 0x7F
                if size == 126 and len(held) >= 4:
                    at, size = 4, int.from_bytes(held[2:4], "big")
                elif size == 127 and len(held) >= 10:
                    at, size = 10, int.from_bytes(held[2:10], "big")
                if size not in (126, 127) or at > 2:
                    assert held[1] & 0x80 == 0, "a server masks nothing"
                    if len(held) >= at + size:
                        self._frames = held[at + size :]
                        return held[0] & 15, held[at : at + size]
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                return -1, b""
            self._frames += data


@statement("MQTT-6.0.0-4", version=5)
@statement("MQTT-6.0.0-4", version=311)
@pytest.mark.parametrize("offered", [b"mqtt", b"chat, mqtt", b"mqtt,mqttv3.1"])
def test_the_subprotocol_mqtt_is_selected(ws_port: int, version: int, offered: bytes) -> None:
    with WebSocket(ws_port, version, offered) as wire:
        assert wire.status == 101
        assert wire.headers[b"sec-websocket-protocol"] == b"mqtt"
        accept = base64.b64encode(hashlib.sha1(KEY + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        assert wire.headers[b"sec-websocket-accept"] == accept
        wire.send(connect(version, "ws"))
        assert wire.expect(CONNACK).reason == 0


@statement("MQTT-6.0.0-4", version=5)
@statement("MQTT-6.0.0-4", version=311)
@pytest.mark.parametrize("offered", [b"", b"chat"])
def test_another_subprotocol_is_not_selected(ws_port: int, version: int, offered: bytes) -> None:
    with WebSocket(ws_port, version, offered) as wire:
        assert wire.status != 101 or b"sec-websocket-protocol" not in wire.headers


@statement("MQTT-6.0.0-1", version=5)
@statement("MQTT-6.0.0-1", version=311)
@pytest.mark.parametrize("before", [False, True], ids=["connected", "opened"])
def test_a_text_frame_ends_the_connection(ws_port: int, version: int, before: bool) -> None:
    with WebSocket(ws_port, version) as wire:
        if not before:
            wire.send(connect(version, "text"))
            assert wire.expect(CONNACK).reason == 0
        wire.frame(TEXT, connect(version, "text"))
        while wire.next() is not None:
            pass
        assert wire.closed


@statement("MQTT-6.0.0-2", version=5)
@statement("MQTT-6.0.0-2", version=311)
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_packets_and_frames_need_not_be_aligned(ws_port: int, version: int, size: int) -> None:
    with WebSocket(ws_port, version) as wire:
        stream = (
            connect(version, f"cut-{size}")
            + subscribe(version, 1, (f"ws/{version}/{size}", 1))
            + publish(version, f"ws/{version}/{size}", b"x" * 300, qos=1, packet_id=2)
            + b"\xc0\x00"
        )
        for at in range(0, len(stream), size):
            wire.write(stream[at : at + size])
        assert wire.expect(CONNACK).reason == 0
        found = [wire.next() for _ in range(4)]
        assert {packet.kind for packet in found if packet} == {PUBLISH, PUBACK, PINGRESP, 9}


@statement("MQTT-6.0.0-2", version=5)
def test_a_message_in_fragments_is_one_stream_of_bytes(ws_port: int, version: int) -> None:
    with WebSocket(ws_port, version) as wire:
        packet = connect(version, "fragments")
        wire.frame(BINARY, packet[:5], final=False)
        wire.frame(PING_FRAME, b"between")
        wire.frame(0, packet[5:9], final=False)
        wire.frame(0, packet[9:])
        assert wire.expect(CONNACK).reason == 0
        wire.quiet()
        assert version == V5
