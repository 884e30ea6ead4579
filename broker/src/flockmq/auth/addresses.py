"""Addresses of clients, as bans, flapping and waiting passwords go by them. Pure."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def plain_address(host: str) -> Address:
    """An IPv4 address that came over an IPv6 socket is the IPv4 address. Raises ValueError."""
    address = ipaddress.ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def network(host: str) -> str:
    """Whose address it is: an IPv6 host has a /64 of them. What is no address stays."""
    if ":" not in host:
        return host
    try:
        address = plain_address(host)
    except ValueError:
        return host
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))
