"""The configuration of one listener: who may connect, from which networks, and which layers its connections have."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

from flockmq.session.limits import Limits
from flockmq.transport.tls_certificates import TlsCertificates
from flockmq.transport.token_bucket import Rates


class Proxy:
    """The load balancers before a listener. `peers`: their addresses. `timeout_s`: how long the PROXY header may take.
    `names_count`: the common name in it is trusted.
    """

    def __init__(self, peers: AddressFilter, timeout_s: float = 3.0, names_count: bool = False) -> None:
        self.peers = peers
        self.timeout_s = timeout_s
        self.names_count = names_count


class Listener:
    """`name`: as in `tcp:default`. `limits`, `client_rates`: those of its zone. `rates`: for all its clients together.
    `path`: of the WebSocket; "": no WebSocket. `allowed_origins`: of web pages; empty: only the listener's own.
    `has_layers`: its connections have layers.
    """

    def __init__(
        self,
        name: str,
        limits: Limits,
        *,
        client_rates: Rates | None = None,
        rates: Rates | None = None,
        access: AddressFilter | None = None,
        max_connections: int = 1_000_000,
        max_conn_rate: float = 0.0,
        proxy: Proxy | None = None,
        certificates: TlsCertificates | None = None,
        path: str = "",
        allowed_origins: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.limits = limits
        self.client_rates: Rates = client_rates or Rates()
        self.rates: Rates = rates or Rates()
        self.access: AddressFilter = access or AddressFilter()
        self.max_connections = max_connections
        self.max_conn_rate = max_conn_rate
        self.proxy = proxy
        self.certificates = certificates
        self.path = path
        self.allowed_origins = tuple(origin.lower() for origin in allowed_origins)
        self.has_layers: bool = proxy is not None or certificates is not None or bool(path)

    def why_refused(self, host: str) -> str:
        """Why a client from this address is turned away; "": it isn't."""
        if self.proxy is not None and not self.proxy.peers.admits(host):
            return f"{self.name}: {host} isn't in proxy_protocol_from"
        return "" if self.access.admits(host) else f"{self.name}: {host} isn't allowed"


_MAPPED: Final = b"\x00" * 10 + b"\xff\xff"
"""IPv4 in the form of a dual-stack socket: `::ffff:192.0.2.1`."""


class AddressFilter:
    """`deny` beats `allow`; an empty `allow` allows all. Unix sockets aren't filtered."""

    __slots__ = ("_allowed", "_denied", "is_open")

    def __init__(
        self,
        allow: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network] = (),
        deny: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network] = (),
    ) -> None:
        self._allowed = [_range(network) for network in allow]
        self._denied = [_range(network) for network in deny]
        self.is_open: bool = not self._allowed and not self._denied

    def admits(self, host: str) -> bool:
        """`host` in the form of a socket address: `192.0.2.1`, `2001:db8::1`, `fe80::1%eth0`."""
        if self.is_open:
            return True
        size, number = _number(host)
        if _holds(self._denied, size, number):
            return False
        return not self._allowed or _holds(self._allowed, size, number)


def _holds(ranges: list[tuple[int, int, int]], size: int, number: int) -> bool:
    return any(range_size == size and first <= number <= last for range_size, first, last in ranges)


def _range(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> tuple[int, int, int]:
    """Address size in bytes, first and last address."""
    first, last = network.network_address.packed, network.broadcast_address.packed
    if first[:12] == _MAPPED and network.prefixlen >= 96:
        first, last = first[12:], last[12:]
    return len(first), int.from_bytes(first, "big"), int.from_bytes(last, "big")


def _number(host: str) -> tuple[int, int]:
    if ":" not in host:
        packed = socket.inet_pton(socket.AF_INET, host)
    else:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        if packed[:12] == _MAPPED:
            packed = packed[12:]
    return len(packed), int.from_bytes(packed, "big")
