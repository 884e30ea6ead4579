"""Makes bound sockets for listeners."""

from __future__ import annotations

import socket
import stat
from pathlib import Path
from typing import Final

from flockmq.errors import AddressInUse, cannot_bind

ALL: Final = "::"
"""All addresses of this machine, of IPv4 too."""
ALL_OF_IPV4: Final = "0.0.0.0"
MENDS: Final = {"listeners.tcp.default.bind": "--listen", "management.listen": "--management"}
"""Key → option that sets another address."""


def bound(host: str, port: int, key: str, *, reuseport: bool = False) -> socket.socket:
    """Make a bound, non-blocking TCP socket. It refuses clients until somebody calls `listen`. `key` is the setting of
    its address, for errors. `reuseport`: other processes of this user may listen there, too. Host `::` is all
    addresses, those of IPv4 too, which are all where the machine has no IPv6. Raises AddressInUse.

    On Linux, accepted sockets inherit TCP_NODELAY from this socket, which saves a system call per client.
    """
    if host == ALL and not socket.has_dualstack_ipv6():
        host = ALL_OF_IPV4
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise AddressInUse(f"{key}: {host}:{port} isn't an address of this machine: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuseport:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if host == ALL:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise cannot_bind(key, f"{host}:{port}", MENDS.get(key), error) from None
    return listener


def bound_unix(path: Path, mode: int, key: str) -> socket.socket:
    """Make a bound Unix socket at `path` with the permissions `mode`.

    A socket file that no process listens on is deleted first. Raises AddressInUse.
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
