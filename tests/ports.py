"""Ports for what tests start at a place that is known before."""

import contextlib
import secrets
import socket
from typing import Final

PORTS: Final = range(20_000, 32_000)
"""Below those that connections are given: none of these takes one while its server is away for a moment."""
_given: Final = set[int]()


def free_port() -> int:
    """One of many, by chance: tests that run at the same time ask, too."""
    while True:
        port = secrets.choice([port for port in PORTS if port not in _given])
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _given.add(port)
            return port
