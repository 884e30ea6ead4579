"""The HTTP request that opens a WebSocket, and the answer to it (RFC 6455 section 4.2)."""

from __future__ import annotations

import binascii
import hashlib
from typing import Final

_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")
"""In order of preference; the answer has the name as the client sent it [MQTT-6.0.0-4]."""
_PORTS: Final = {"http": "80", "https": "443"}
"""Default ports, which a browser leaves out of Origin and Host."""
_REASONS: Final = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
}


class UpgradeRefused(Exception):
    """The request isn't a valid upgrade to MQTT over WebSocket: HTTP status and one line of explanation."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"HTTP {status}: {why}")
        self.status = status
        self.why = why

    def response(self) -> bytes:
        extra = {405: "Allow: GET\r\n", 426: "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"}.get(self.status, "")
        body = f"{self.why}\n"
        return (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n{extra}Content-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n{body}"
        ).encode()


def accept(head: bytes, path: str, allowed_origins: tuple[str, ...]) -> bytes:
    """The answer 101 to a request's head, without its last empty line. Raises UpgradeRefused."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise UpgradeRefused(400, "this is a WebSocket listener, and that was no HTTP request")
    if words[0] != "GET":
        raise UpgradeRefused(405, "a WebSocket is opened with GET")
    if words[2] != "HTTP/1.1":
        raise UpgradeRefused(400, "a WebSocket is opened with HTTP/1.1")
    if words[1].partition("?")[0] != path:
        raise UpgradeRefused(404, f"MQTT is at {path}")
    headers = _headers(lines)
    if "websocket" not in _tokens(headers, "upgrade") or "upgrade" not in _tokens(headers, "connection"):
        raise UpgradeRefused(426, "MQTT over WebSocket only: send Upgrade: websocket and Connection: Upgrade")
    if headers.get("sec-websocket-version") != "13":
        raise UpgradeRefused(426, "WebSocket version 13 only")
    if "origin" in headers and not _is_welcome(headers["origin"].lower(), headers.get("host", ""), allowed_origins):
        raise UpgradeRefused(403, "pages of this origin may not connect: it isn't in allowed_origins")
    key = headers.get("sec-websocket-key", "")
    if not _is_key(key):
        raise UpgradeRefused(400, "Sec-WebSocket-Key isn't 16 bytes in base64")
    offered = [name.strip() for name in headers.get("sec-websocket-protocol", "").split(",")]
    chosen = next((name for known in _SUBPROTOCOLS for name in offered if name.lower() == known), None)
    if chosen is None:
        raise UpgradeRefused(400, "Sec-WebSocket-Protocol must offer mqtt")
    digest = hashlib.sha1(key.encode("latin-1") + _MAGIC, usedforsecurity=False).digest()
    sum = binascii.b2a_base64(digest, newline=False).decode()
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {sum}\r\nSec-WebSocket-Protocol: {chosen}\r\n\r\n"
    ).encode()


def _is_welcome(origin: str, host: str, allowed: tuple[str, ...]) -> bool:
    """True if a page's scripts may connect. A browser sends the page's origin; other clients send none."""
    if allowed:
        return "*" in allowed or origin in allowed
    scheme, _, place = origin.partition("://")
    return bool(place) and _with_port(place, scheme) == _with_port(host.lower(), scheme)


def _with_port(place: str, scheme: str) -> str:
    name, colon, port = place.rpartition(":")
    return place if name and colon and port.isdigit() else f"{place}:{_PORTS.get(scheme, '')}"


def _headers(lines: list[str]) -> dict[str, str]:
    """Headers by lower-case name; repeated ones are joined with commas."""
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise UpgradeRefused(400, "a header line without a name and a colon")
        known = headers.get(name.lower())
        headers[name.lower()] = value.strip() if known is None else f"{known}, {value.strip()}"
    return headers


def _tokens(headers: dict[str, str], name: str) -> list[str]:
    return [token.strip().lower() for token in headers.get(name, "").split(",")]


def _is_key(key: str) -> bool:
    try:
        return len(key) == 24 and len(binascii.a2b_base64(key.encode("ascii"), strict_mode=True)) == 16
    except ValueError:
        return False
