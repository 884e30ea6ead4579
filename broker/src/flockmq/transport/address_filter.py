"""Which addresses may connect, by networks: a few integer comparisons, before anything is kept for a client."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

_MAPPED: Final = b"\x00" * 10 + b"\xff\xff"
"""IPv4 as a dual-stack socket shows it: `::ffff:192.0.2.1`."""


class AddressFilter:
    """`deny` beats `allow`; an empty `allow` allows all. What is no IP address (a Unix socket) is not judged."""

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
        """`host` as a socket shows it: `192.0.2.1`, `2001:db8::1`, `fe80::1%eth0`."""
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
