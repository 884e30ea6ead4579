"""Sockets to listen on."""

from __future__ import annotations

import socket
import stat
from pathlib import Path
from typing import Final

from flockmq.errors import AddressInUse, cannot_bind

MENDS: Final = {"listeners.tcp.default.bind": "--listen", "management.listen": "--management"}
"""Which option chooses another address."""


def bound(host: str, port: int, key: str) -> socket.socket:
    """A bound, non-blocking socket, which refuses clients until the reactor listens on it. `key` is
    where its address is configured. Raises AddressInUse.

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
        raise cannot_bind(key, f"{host}:{port}", MENDS.get(key), error) from None
    return listener


def bound_unix(path: Path, mode: int, key: str) -> socket.socket:
    """The same for a Unix socket at `path`, which only those may connect to whom `mode` lets write it.

    A socket that nobody listens on any more is taken away first. Raises AddressInUse.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_left_over(path):
            path.unlink()
        listener.bind(str(path))
        path.chmod(mode)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise cannot_bind(key, path, None, error) from None
    return listener


def _is_left_over(path: Path) -> bool:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
