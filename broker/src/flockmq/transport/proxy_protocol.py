"""The PROXY protocol header, versions 1 and 2: a load balancer names the client for which it connects (HAProxy's
specification).

Invariants: at most PROXY_HEADER_MAX_BYTES are kept. Only a complete, valid header lets a connection pass.
"""

from __future__ import annotations

import socket
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import PROXY_HEADER_MAX_BYTES
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import ClientCertificate
from flockmq.transport.peer_address import plain

_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V1_MAX_BYTES: Final = 107
_V2_FIXED_BYTES: Final = 16
_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_INET: Final = 0x1
_INET6: Final = 0x2
_TLV_SSL: Final = 0x20
_TLV_SSL_CN: Final = 0x22
_CLIENT_CERT: Final = 0x06  # on this connection, or on the TLS session that it resumes


@mypyc_attr(acyclic=True)
class ProxyHeader:
    """`is_whole`: the header is complete. `host`: "" if the balancer connects for itself (LOCAL, UNKNOWN); then the
    socket's own address counts.
    """

    __slots__ = ("_kept", "certificate", "host", "is_whole", "port")

    def __init__(self) -> None:
        self.host: str = ""
        self.port: int = 0
        self.certificate: ClientCertificate | None = None
        self.is_whole: bool = False
        self._kept: bytes = b""

    def take(self, data: bytes) -> bytes:
        """Take received bytes; returns what follows the header, once it is complete. Raises PacketError."""
        data = self._kept + data
        size = self._header(data)
        if size == 0:
            self._kept = data
            return b""
        self._kept = b""
        self.is_whole = True
        return data[size:]

    def _header(self, data: bytes) -> int:
        """The header's size; 0: incomplete."""
        start = data[:12]
        if start == _V2[: len(start)]:
            return self._version2(data)
        if start[:6] == b"PROXY "[: len(start)]:
            return self._version1(data)
        raise _refused("no PROXY header; is proxy_protocol meant to be on?")

    def _version1(self, data: bytes) -> int:
        end = data.find(b"\r\n", 0, _V1_MAX_BYTES)
        if end < 0:
            if len(data) >= _V1_MAX_BYTES:
                raise _refused("a PROXY line without an end")
            return 0
        words = data[:end].split(b" ")
        if len(words) >= 2 and words[1] == b"UNKNOWN":
            return end + 2
        if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
            raise _refused("a PROXY line that isn't TCP4, TCP6 or UNKNOWN with two addresses and two ports")
        family = socket.AF_INET if words[1] == b"TCP4" else socket.AF_INET6
        try:
            packed = socket.inet_pton(family, words[2].decode())
            socket.inet_pton(family, words[3].decode())
        except (OSError, ValueError):
            raise _refused("a PROXY line with an invalid address") from None
        for port in (words[4], words[5]):
            if not port.isdigit() or len(port) > 5 or int(port) > 65_535:
                raise _refused("a PROXY line with an invalid port")
        self.host = plain(socket.inet_ntop(family, packed))
        self.port = int(words[4])
        return end + 2

    def _version2(self, data: bytes) -> int:
        if len(data) < _V2_FIXED_BYTES:
            return 0
        command = data[12]
        size = _V2_FIXED_BYTES + (data[14] << 8 | data[15])
        if size > PROXY_HEADER_MAX_BYTES:
            raise _refused(f"a PROXY header of {size} bytes; the bound is {PROXY_HEADER_MAX_BYTES}")
        if command not in (_LOCAL, _PROXY):
            raise _refused(f"a PROXY header of version and command 0x{command:02X}")
        if len(data) < size:
            return 0
        if command == _PROXY:
            self._addresses(data, data[13] >> 4, size)
        return size

    def _addresses(self, data: bytes, family: int, size: int) -> None:
        at = _V2_FIXED_BYTES
        if family == _INET:
            length, packed = 12, data[at : at + 4]
        elif family == _INET6:
            length, packed = 36, data[at : at + 16]
        else:
            return  # Unix sockets and unspecified families: the balancer's own address counts.
        if at + length > size:
            raise _refused("a PROXY header without room for its addresses")
        ports = at + 2 * len(packed)
        self.host = plain(socket.inet_ntop(socket.AF_INET if family == _INET else socket.AF_INET6, packed))
        self.port = data[ports] << 8 | data[ports + 1]
        for kind, value in _extensions(data[at + length : size]):
            if kind == _TLV_SSL and len(value) >= 5 and value[0] & _CLIENT_CERT and value[1:5] == bytes(4):
                self._verified(value[5:])

    def _verified(self, extensions: bytes) -> None:
        """The balancer verified the client's certificate: take its common name."""
        for kind, value in _extensions(extensions):
            if kind == _TLV_SSL_CN:
                try:
                    name = value.decode()
                except UnicodeDecodeError:
                    raise _refused("a PROXY header with a common name that isn't UTF-8") from None
                self.certificate = ClientCertificate(name, f"CN={name}")


def _extensions(data: bytes) -> list[tuple[int, bytes]]:
    """Kind and value of each extension."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at + 3 <= len(data):
        end = at + 3 + (data[at + 1] << 8 | data[at + 2])
        if end > len(data):
            raise _refused("a PROXY header with an extension beyond its end")
        found.append((data[at], data[at + 3 : end]))
        at = end
    return found


def _refused(what: str) -> PacketError:
    return PacketError(Reason.PROTOCOL_ERROR, "PROXY protocol", what)
