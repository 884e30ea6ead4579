"""Who is at the other end of an accepted socket."""

from __future__ import annotations

import socket

from flockmq.protocol.client import UNKNOWN


def plain(host: str) -> str:
    """An address as it is written elsewhere: an IPv4 client of an IPv6 socket has its IPv4 address."""
    return host[7:] if host.startswith("::ffff:") and "." in host else host


def peer_of(fd: int, family: int) -> tuple[str, int]:
    """The other end's address and port; ("", 0) for a Unix socket; (UNKNOWN, 0) when it is gone, because who reset its
    connection must not pass for somebody without an address."""
    try:
        borrowed = socket.socket(family, socket.SOCK_STREAM, 0, fileno=fd)  # else Python asks the kernel for them
    except (OSError, ValueError):  # closed: -1
        return UNKNOWN, 0
    try:
        name = borrowed.getpeername()
    except OSError:
        return "" if family == socket.AF_UNIX else UNKNOWN, 0
    finally:
        borrowed.detach()
    return (plain(str(name[0])), int(name[1])) if isinstance(name, tuple) else ("", 0)
