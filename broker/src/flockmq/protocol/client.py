"""A client's identity and address, and the results of its authorization.

Authorization, rewrite rules and plugins use these. `Principal` is the authenticated identity. `PeerInfo` is known
before CONNECT.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

DENIED: Final = 0
ALLOWED: Final = 1
ASKED: Final = 2
UNDECIDED: Final = 3
"""The authorization result is unknown: the request is refused, but not as "not authorized"."""

PUBLISH: Final = 1
SUBSCRIBE: Final = 2
"""Actions."""

UNKNOWN: Final = "?"
"""The host of a client that has already disconnected."""


@mypyc_attr(acyclic=True)
class Principal:
    """`rules`: the client's own rules, compiled by the authorizer. `expires_at_s`: when the connection must end, as
    Unix time; 0: never. `user_id` and `user`: the row of the users table by which the client logged in, as it was
    then; b"" and None if it logged in otherwise.
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

    def is_nobody(self) -> bool:
        """True if it says nothing of the client."""
        says = self.username or self.superuser or self.expires_at_s or self.user_id
        return not says and self.rules is None and self.attributes is None and self.user is None


ANONYMOUS: Final = Principal(b"")
"""A client before authentication, and all clients without a name where no rules apply. Where they do, a client has a
principal of its own: decisions are cached by it.
"""


@mypyc_attr(acyclic=True)
class ClientCertificate:
    """A verified client certificate. `subject`: in the format of RFC 4514."""

    __slots__ = ("common_name", "subject")

    def __init__(self, common_name: str, subject: str) -> None:
        self.common_name = common_name
        self.subject = subject


@mypyc_attr(acyclic=True)
class PeerInfo:
    """`host`: an address without port; "" for a Unix socket. `listener`: its name, as in `tcp:default`. `is_balanced`:
    a load balancer connected, and says for whom.
    """

    __slots__ = ("certificate", "host", "is_balanced", "listener", "port", "zone")

    def __init__(
        self,
        host: str,
        port: int,
        listener: str,
        zone: str = "default",
        certificate: ClientCertificate | None = None,
        is_balanced: bool = False,
    ) -> None:
        self.host = host
        self.is_balanced = is_balanced
        self.port = port
        self.listener = listener
        self.zone = zone
        self.certificate = certificate
