"""Who a client is, where it comes from, and what it may be allowed to do.

What authorization, rewriting and plugins go by: the `Principal` is what its authentication found; `PeerInfo` is known
of the other end of a connection before its CONNECT.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

DENIED: Final = 0
ALLOWED: Final = 1
ASKED: Final = 2
UNTOLD: Final = 3
"""Nobody can say now: it is refused, but not as what the client may not do."""

PUBLISH: Final = 1
SUBSCRIBE: Final = 2
"""What a client may be allowed to do to a topic."""

UNKNOWN: Final = "?"
"""The host of a client that is gone already."""


@mypyc_attr(acyclic=True)
class Principal:
    """`rules` are the client's own, compiled by whoever authorizes, opaque here; `expires_at_s` is wall-clock seconds
    since the epoch (0: never), at which the connection ends. `user_id` and `user` are the row of the log's users that
    let it in, as it was then; b"" and None where something else did.
    """

    __slots__ = ("attributes", "expires_at_s", "rules", "superuser", "user", "user_id", "username")

    def __init__(
        self,
        username: bytes,
        *,
        superuser: bool = False,
        rules: object = None,
        expires_at_s: float = 0.0,
        attributes: dict[str, str] | None = None,
        user_id: bytes = b"",
        user: object = None,
    ) -> None:
        self.username = username
        self.superuser = superuser
        self.rules = rules
        self.expires_at_s = expires_at_s
        self.attributes = attributes
        self.user_id = user_id
        self.user = user


ANONYMOUS: Final = Principal(b"")
"""Of a client that hasn't said yet who it is. Whoever is let in has a principal of its own, without a name or not."""


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
