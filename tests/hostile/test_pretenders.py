"""Who says that it is somebody else, at the listeners of one real node."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from conformance.wire import V311, connect
from integration.dev.commands import PATIENCE_S, Commands

CONFIG = """
[authentication]
allow_anonymous = true
[listeners.tcp.plain]
bind = "127.0.0.1:0"
[listeners.tcp.balanced]
bind = "127.0.0.1:0"
proxy_protocol = true
proxy_protocol_from = ["127.0.0.2"]
deny = ["192.0.2.66"]
[listeners.tcp.strangers]
bind = "127.0.0.1:0"
proxy_protocol = true
proxy_protocol_from = ["127.0.0.0/8"]
deny = ["127.0.0.1"]
[listeners.ws.page]
bind = "127.0.0.1:0"
"""
CONNECT = connect(V311, "pretender")
CONNACK = b"\x20\x02\x00\x00"
NOT_AUTHORIZED = b"\x20\x02\x00\x05"
VERSION_2 = b"\r\n\r\n\x00\r\nQUIT\n"

Ask = Callable[..., bytes]


@pytest.fixture(scope="module", params=[CONFIG])
def ask(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Ask]:
    """Send bytes to a listener, from an address of this machine; what it says until it is silent or closes."""
    commands = Commands()
    folder = tmp_path_factory.mktemp("pretenders")
    (folder / "node.toml").write_text(request.param)
    try:
        _, told = commands.start_node("--config", str(folder / "node.toml"), "--data-dir", str(folder / "data"))

        def ask(listener: str, data: bytes, source: str = "127.0.0.1") -> bytes:
            address = ("127.0.0.1", told["listeners"][listener])
            with socket.create_connection(address, PATIENCE_S, (source, 0)) as client:
                try:
                    client.sendall(data)
                    return client.recv(1000)
                except (ConnectionResetError, BrokenPipeError):
                    return b""

        yield ask
    finally:
        commands.end_all()


def header(host: str, common_name: bytes = b"") -> bytes:
    addresses = socket.inet_aton(host) + socket.inet_aton("10.0.0.1") + struct.pack(">HH", 4711, 1883)
    name = b"\x22" + struct.pack(">H", len(common_name)) + common_name
    verified = b"\x20" + struct.pack(">H", 5 + len(name)) + b"\x07\0\0\0\0" + name
    body = addresses + (verified if common_name else b"")
    return VERSION_2 + b"\x21\x11" + struct.pack(">H", len(body)) + body


def test_a_stranger_who_claims_an_address_is_not_believed(ask: Ask) -> None:
    assert ask("tcp:balanced", header("198.51.100.1") + CONNECT, "127.0.0.2") == CONNACK
    assert ask("tcp:balanced", header("198.51.100.1") + CONNECT, "127.0.0.1") == b""
    assert ask("tcp:balanced", b"PROXY TCP4 198.51.100.1 10.0.0.1 1 2\r\n" + CONNECT, "127.0.0.3") == b""


def test_who_is_denied_hides_behind_no_header(ask: Ask) -> None:
    assert ask("tcp:balanced", header("192.0.2.66") + CONNECT, "127.0.0.2") == b""
    assert ask("tcp:strangers", header("198.51.100.1") + CONNECT, "127.0.0.2") == CONNACK
    assert ask("tcp:strangers", header("198.51.100.1") + CONNECT, "127.0.0.1") == b""


@pytest.mark.parametrize("ask", [CONFIG.replace("allow_anonymous = true", "")], indirect=True)
def test_who_comes_through_a_balancer_is_not_of_this_machine(ask: Ask) -> None:
    assert ask("tcp:plain", CONNECT) == CONNACK
    for claim in (header("127.0.0.1"), b"PROXY TCP4 127.0.0.1 10.0.0.1 1 2\r\n", b"PROXY UNKNOWN\r\n"):
        assert ask("tcp:balanced", claim + CONNECT, "127.0.0.2") == NOT_AUTHORIZED


@pytest.mark.parametrize(
    ("origin", "answer"),
    [("Origin: https://evil.example\r\n", b"403"), ("Origin: http://here:8083\r\n", b"101"), ("", b"101")],
)
def test_a_page_of_somebody_else_opens_no_websocket(ask: Ask, origin: str, answer: bytes) -> None:
    head = (
        f"GET /mqtt HTTP/1.1\r\nHost: here:8083\r\n{origin}Upgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    assert ask("ws:page", head.encode())[9:12] == answer
