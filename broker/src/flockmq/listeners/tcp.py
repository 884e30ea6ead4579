"""Listening sockets for MQTT over TCP."""

from __future__ import annotations

import socket

from flockmq.errors import AddressInUse, cannot_bind


def bound(host: str, port: int, key: str = "listeners.tcp.default.bind") -> socket.socket:
    """A bound, non-blocking socket, which refuses clients until the engine listens on it. Raises AddressInUse.

    TCP_NODELAY is set here: on Linux the accepted sockets inherit it, which saves a system call for each client.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise AddressInUse(f"{key}: {host}:{port} isn't an address of this machine: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise cannot_bind(key, f"{host}:{port}", "--listen", error) from None
    return listener
