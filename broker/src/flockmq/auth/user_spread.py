"""How something is spread over the users of the log, to answer unknown names as if they were users. No I/O.

Invariants: over all unknown names, what is chosen has the same distribution as among users. The choice for one name
changes no more often than that of a real user.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from flockmq.rlog.schema import User

T = TypeVar("T", int, str)


class UserSpread(Generic[T]):
    """A listener of the users table. `of`: what a user has; None: nothing of this kind."""

    def __init__(self, of: Callable[[User], T | None]) -> None:
        self._of: Callable[[User], T | None] = of
        self._users: Counter[T] = Counter()
        """Value → number of users that have it."""

    def chosen_for(self, name: str, purpose: bytes, secret: bytes) -> T | None:
        """What an unknown name has. None: no user has any."""
        digest = hmac.digest(secret, purpose + name.encode(), "sha256")
        place = int.from_bytes(digest[:8], "big") * self._users.total() >> 64
        for value, users in sorted(self._users.items()):
            if place < users:
                return value
            place -= users
        return None

    def put(self, key: str, value: User, old: User | None) -> None:
        if old is not None:
            self._count(old, -1)
        self._count(value, 1)

    def delete(self, key: str, old: User) -> None:
        self._count(old, -1)

    def fresh(self) -> Self:
        return type(self)(self._of)

    def swap(self, fresh: Self) -> None:
        self._users = fresh._users

    def _count(self, user: User, change: int) -> None:
        value = self._of(user)
        if value is not None:
            self._users[value] += change
            if not self._users[value]:
                del self._users[value]
