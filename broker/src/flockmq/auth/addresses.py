"""Addresses of clients, as bans, flapping detection and waiting passwords compare them. Pure."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def plain_address(host: str) -> Address:
    """An IPv4 address that came over an IPv6 socket is the IPv4 address. Raises ValueError."""
    address = ipaddress.ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def network(host: str) -> str:
    """Whose address it is: an IPv6 host has a /64 of them. A text that is no address stays. Asked at every login."""
    if ":" not in host:
        return host
    try:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        return host
    if packed.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, packed[len(_MAPPED) :])
    return socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8)) + "/64"


_MAPPED: Final = bytes(10) + b"\xff\xff"
"""Before an IPv4 address."""
