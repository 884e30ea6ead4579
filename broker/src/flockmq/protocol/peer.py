"""What is known of the other end of a connection before its CONNECT: where it comes from, and by which listener."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

UNKNOWN: Final = "?"
"""The host of a client that is gone already."""


@mypyc_attr(acyclic=True)
class ClientCertificate:
    """A verified client certificate: `subject` as RFC 4514 writes it."""

    __slots__ = ("common_name", "subject")

    def __init__(self, common_name: str, subject: str) -> None:
        self.common_name = common_name
        self.subject = subject


@mypyc_attr(acyclic=True)
class PeerInfo:
    """`host` is an address without port ("" for a Unix socket), `listener` is named as in `tcp:default`."""

    __slots__ = ("certificate", "host", "listener", "port", "zone")

    def __init__(
        self, host: str, port: int, listener: str, zone: str = "default", certificate: ClientCertificate | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.listener = listener
        self.zone = zone
        self.certificate = certificate
