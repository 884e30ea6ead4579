"""A link whose other end the test holds."""

from __future__ import annotations

import socket

from flockmq.bench.link import BenchLink
from flockmq.bench.target import BenchTarget


def wire() -> tuple[BenchLink, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = BenchLink(BenchTarget("mqtt", "127.0.0.1", listener.getsockname()[1]))
        far, _ = listener.accept()
    far.settimeout(10)
    link.make_nonblocking()
    return link, far
