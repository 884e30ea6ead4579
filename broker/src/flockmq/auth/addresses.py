"""IP addresses of clients in the form in which bans, flapping detection and login limits compare them. No I/O."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAPPED_BITS: Final = 96
"""The length of the prefix of IPv4-mapped IPv6 addresses."""


def plain_address(host: str) -> Address:
    """Parse an address. An IPv4-mapped IPv6 address becomes the IPv4 address. Raises ValueError."""
    address = ipaddress.ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def plain_network(text: str) -> Network:
    """Parse an address or a network. One of IPv4-mapped IPv6 addresses becomes the IPv4 network, because
    `plain_address` makes IPv4 addresses of its clients. Raises ValueError."""
    network = ipaddress.ip_network(text)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < MAPPED_BITS:
        return network
    return ipaddress.ip_network((mapped, network.prefixlen - MAPPED_BITS))


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
