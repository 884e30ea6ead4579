"""Users in the log that lose rights while they are connected: they are deleted, disabled or demoted, or have another
password.

A disabled user's hash and verifier stand behind a mark, as in /etc/shadow, so that no release takes them for valid.

What always holds: a client that was let in as a user of the log, and whose user isn't any more what it was then, is
found. It doesn't matter whether the row changed before the connection was there or after; a bootstrap doesn't either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

import msgspec

from flockmq.protocol.principal import Principal
from flockmq.rlog.schema import User

Lookup = Callable[[str], User | None]
DISABLED: Final = "!"


class Users:
    """A listener of the table of users. `on_revoked` hears of a user that lost something, or None when any may have."""

    def __init__(self, lookup: Lookup) -> None:
        self.on_revoked: Callable[[bytes | None], None] = _nobody
        self._lookup = lookup

    def is_revoked(self, principal: Principal) -> bool:
        """Whether what let this client in doesn't hold any more."""
        then = principal.user
        if not isinstance(then, User):
            return False
        now = self._lookup(principal.user_id.decode())
        return now is None or loses(then, now)

    def put(self, key: str, value: User, old: User | None) -> None:
        if old is not None and loses(old, value):
            self.on_revoked(key.encode())

    def delete(self, key: str, old: User) -> None:
        self.on_revoked(key.encode())

    def fresh(self) -> Self:
        return type(self)(self._lookup)

    def swap(self, fresh: Self) -> None:
        self.on_revoked(None)


def loses(then: User, now: User) -> bool:
    """Whether a user lost a password or rights. A verifier where there was none is of the same password."""
    return (
        now.password_hash != then.password_hash
        or (bool(then.scram) and now.scram != then.scram)
        or (then.is_superuser and not now.is_superuser)
    )


def is_disabled(user: User) -> bool:
    return user.password_hash.startswith(DISABLED)


def disabled(user: User) -> User:
    return (
        user
        if is_disabled(user)
        else _marked(user, DISABLED + user.password_hash, user.scram and DISABLED + user.scram)
    )


def enabled(user: User) -> User:
    if not is_disabled(user):
        return user
    return _marked(user, user.password_hash.removeprefix(DISABLED), user.scram.removeprefix(DISABLED))


def _marked(user: User, password_hash: str, scram: str) -> User:
    return msgspec.structs.replace(user, password_hash=password_hash, scram=scram)


def _nobody(_: bytes | None) -> None:
    """Nobody is connected yet."""
