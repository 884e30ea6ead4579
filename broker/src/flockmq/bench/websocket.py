"""WebSocket for a client (RFC 6455): the opening request, masked frames to send, and payload from received frames."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Final

ANSWER_MAX_BYTES: Final = 8192
BINARY: Final = 0x82
MASKED: Final = 0x80
CLOSE: Final = 8
MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY: Final = base64.b64encode(os.urandom(16))


def request(host: str, port: int, path: str) -> bytes:
    """The opening request with the subprotocol `mqtt` [MQTT-6.0.0-3]."""
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {host}:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {KEY.decode()}",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Protocol: mqtt",
    )
    return "\r\n".join((*lines, "", "")).encode()


def refusal(answer: bytes) -> str | None:
    """Why the server's answer, up to its empty line, opens no WebSocket; None if it does."""
    status, *lines = answer.decode("latin-1").split("\r\n")
    if " 101" not in status:
        return status
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("sec-websocket-accept") != base64.b64encode(hashlib.sha1(KEY + MAGIC).digest()).decode():  # noqa: S324
        return "Sec-WebSocket-Accept doesn't answer this request"
    if headers.get("sec-websocket-protocol") != "mqtt":
        return "the subprotocol mqtt wasn't chosen"
    return None


def frame(packet: bytes) -> bytes:
    """One binary message with the packet, masked as a client must do."""
    length, key = len(packet), os.urandom(4)
    if length < 126:
        head = bytes((BINARY, MASKED | length))
    elif length < 1 << 16:
        head = bytes((BINARY, MASKED | 126)) + length.to_bytes(2, "big")
    else:
        head = bytes((BINARY, MASKED | 127)) + length.to_bytes(8, "big")
    mask = (key * (length // 4 + 1))[:length]
    masked = (int.from_bytes(packet, "big") ^ int.from_bytes(mask, "big")).to_bytes(length, "big")
    return head + key + masked


class WebSocketFrames:
    """Removes frame headers from what a server sends, wherever it is split."""

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        self._head = b""
        """An incomplete frame header."""
        self._left = 0
        """Bytes of the current frame's payload that haven't arrived."""

    def unwrap(self, buffer: memoryview, count: int) -> int:
        """Keep only the payload in `buffer[:count]`. Returns its size. Raises ValueError if the server closes."""
        at = out = 0
        while at < count:
            if self._left:
                size = min(self._left, count - at)
                buffer[out : out + size] = buffer[at : at + size]
                self._left -= size
                at += size
                out += size
                continue
            head = self._head + bytes(buffer[at : at + 10 - len(self._head)])
            size = _head_bytes(head)
            if size > len(head):
                self._head = head
                break
            at += size - len(self._head)
            self._head = b""
            self._left = head[1] if size == 2 else int.from_bytes(head[2:size], "big")
            if head[0] & 0x0F == CLOSE:
                raise ValueError("the server closes the WebSocket")
        return out


def _head_bytes(head: bytes) -> int:
    """The length of a server's frame header that begins so; a server masks nothing."""
    if len(head) < 2 or head[1] < 126:
        return 2
    return 4 if head[1] == 126 else 10
