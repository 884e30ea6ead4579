"""PROXY headers as balancers send them, cut anywhere, and what is none."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.bounds import PROXY_HEADER_MAX_BYTES
from flockmq.mqtt.errors import PacketError
from flockmq.transport.proxy_protocol import ProxyHeader

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V4 = socket.inet_aton("192.0.2.1") + socket.inet_aton("10.0.0.1") + struct.pack(">HH", 4711, 1883)
V6 = socket.inet_pton(socket.AF_INET6, "2001:db8::1") + bytes(16) + struct.pack(">HH", 4711, 1883)


def version2(body: bytes, command: int = 0x21, family: int = 0x11) -> bytes:
    return SIGNATURE + bytes((command, family)) + struct.pack(">H", len(body)) + body


def extension(kind: int, value: bytes) -> bytes:
    return bytes((kind,)) + struct.pack(">H", len(value)) + value


def tls(client: int, verified: int, name: bytes) -> bytes:
    return extension(0x20, bytes((client,)) + struct.pack(">I", verified) + extension(0x22, name))


def taken(data: bytes) -> ProxyHeader:
    header = ProxyHeader()
    assert header.take(data + b"rest") == b"rest"
    assert header.is_whole
    return header


@pytest.mark.parametrize(
    ("data", "host", "port"),
    [
        (b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 1883\r\n", "192.0.2.1", 4711),
        (b"PROXY TCP6 2001:db8:0::1 ::1 4711 1883\r\n", "2001:db8::1", 4711),
        (b"PROXY UNKNOWN\r\n", "", 0),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "", 0),
        (version2(V4), "192.0.2.1", 4711),
        (version2(V6, family=0x21), "2001:db8::1", 4711),
        (version2(b"", command=0x20, family=0), "", 0),
        (version2(V4, command=0x20), "", 0),
        (version2(bytes(216), family=0x31), "", 0),
    ],
)
def test_a_header_says_who_the_client_is_however_it_is_cut(data: bytes, host: str, port: int) -> None:
    header = taken(data)
    assert (header.host, header.port, header.certificate) == (host, port, None)
    for cut in range(1, len(data)):
        header = ProxyHeader()
        assert header.take(data[:cut]) == b""
        assert header.take(data[cut:] + b"x") == b"x"
        assert (header.host, header.port) == (host, port)


def test_the_common_name_of_a_client_certificate_that_the_balancer_verified() -> None:
    certificate = taken(version2(V4 + extension(1, b"h2") + tls(0x07, 0, "gäte".encode()))).certificate
    assert certificate is not None
    assert (certificate.common_name, certificate.subject) == ("gäte", "CN=gäte")


@pytest.mark.parametrize("part", [tls(0x01, 0, b"x"), tls(0x07, 1, b"x"), extension(0x20, b"\x07")])
def test_a_certificate_that_was_not_shown_or_not_verified_counts_for_nothing(part: bytes) -> None:
    assert taken(version2(V4 + part)).certificate is None


@pytest.mark.parametrize(
    "data",
    [
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
        b"PROXX",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 4711\r\n",
        b"PROXY TCP5 192.0.2.1 10.0.0.1 4711 1883\r\n",
        b"PROXY TCP4 192.0.2.999 10.0.0.1 4711 1883\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 65536 1883\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 -1 1883\r\n",
        b"PROXY " + b"x" * 101,
        version2(V4, command=0x11),
        version2(V4, command=0x22),
        version2(V4[:8]),
        version2(V4 + b"\x20\x00\xff"),
        version2(V4 + extension(0x20, b"\x07\x00\x00\x00\x00" + b"\x22\x00\xff")),
        version2(V4 + tls(0x07, 0, b"\xff")),
        version2(bytes(PROXY_HEADER_MAX_BYTES)),
    ],
)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(PacketError, match="PROXY"):
        ProxyHeader().take(data)


@given(st.binary(min_size=1, max_size=200), st.booleans())
def test_any_bytes_are_taken_or_refused(data: bytes, signed: bool) -> None:
    header = ProxyHeader()
    try:
        header.take((SIGNATURE if signed else b"") + data)
    except PacketError:
        assert not header.is_whole
