"""IP addresses of clients in the form in which bans, flapping detection and login limits compare them. No I/O."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def plain_address(host: str) -> Address:
    """Parse an address. An IPv4-mapped IPv6 address becomes the IPv4 address. Raises ValueError."""
    address = ipaddress.ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def shown_address(host: str) -> str:
    """For people: an IPv4-mapped IPv6 address as the IPv4 address that it is; any other text unchanged."""
    try:
        return str(plain_address(host))
    except ValueError:
        return host


def network(host: str) -> str:
    """The text under which an address is counted: an IPv6 address by its /64, because one host has all of it. A text
    that isn't an address is returned unchanged. Called at every login, so it is fast."""
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
"""The prefix of an IPv4-mapped IPv6 address."""
