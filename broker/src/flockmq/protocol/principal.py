"""Who a client is, as its authentication found: what authorization, rewriting and plugins go by."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr


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
