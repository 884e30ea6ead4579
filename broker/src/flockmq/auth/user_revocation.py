"""Finds connected clients whose user in the log was deleted, disabled or demoted, or got another password.

The hash and the verifier of a disabled user begin with "!", as in /etc/shadow, so no release accepts them.

Invariants: a client that was authenticated against a row of the log is found as soon as that row takes rights away.
This also holds if the row changed before the client was connected, or during a bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

import msgspec

from flockmq.default_callbacks import ignore
from flockmq.protocol.client import Principal
from flockmq.rlog.schema import User

Lookup = Callable[[str], User | None]
DISABLED: Final = "!"


class UserRevocation:
    """A listener of the users table. It calls `on_revoked` with the id of a user that lost rights, or with None if any
    user may have."""

    def __init__(self, lookup: Lookup) -> None:
        self.on_revoked: Callable[[bytes | None], None] = ignore
        self._lookup = lookup

    def is_revoked(self, principal: Principal) -> bool:
        """Whether the row that this client was authenticated against no longer allows it."""
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
    """Whether the user's password or rights changed for the worse. A verifier that is only added is no change: it is
    for the same password."""
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
