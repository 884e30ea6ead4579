"""The address at the other end of an accepted socket."""

from __future__ import annotations

import socket

from flockmq.protocol.client import UNKNOWN


def plain(host: str) -> str:
    """The usual form of an address: an IPv4 client of an IPv6 socket gets its IPv4 address."""
    return host[7:] if host.startswith("::ffff:") and "." in host else host


def peer_of(fd: int, family: int) -> tuple[str, int]:
    """The address and port of the other end; ("", 0) for a Unix socket; (UNKNOWN, 0) if the connection is gone. A
    client that has reset its connection must not count as one without an address.
    """
    try:
        # With these arguments Python doesn't ask the kernel.
        borrowed = socket.socket(family, socket.SOCK_STREAM, 0, fileno=fd)
    except (OSError, ValueError):  # -1: closed.
        return UNKNOWN, 0
    try:
        name = borrowed.getpeername()
    except OSError:
        return "" if family == socket.AF_UNIX else UNKNOWN, 0
    finally:
        borrowed.detach()
    return (plain(str(name[0])), int(name[1])) if isinstance(name, tuple) else ("", 0)
