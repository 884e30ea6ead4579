"""How many iterations a user is told who doesn't exist: as many as some user who does, or the number would tell. Pure.

What always holds: over all names, each number is told as often as stored verifiers have it. For one name it changes no
more often than a user's does.
"""

from __future__ import annotations

import hmac
from collections import Counter
from typing import Self

from flockmq.auth import scram
from flockmq.auth.user_revocation import enabled
from flockmq.rlog.schema import User


class ScramIterations:
    """A listener of the table of users. `usual`: the number told while nobody has a verifier."""

    def __init__(self, usual: int) -> None:
        self._usual = usual
        self._users: Counter[int] = Counter()
        """By iterations."""

    def of_nobody(self, name: str, pepper: bytes) -> int:
        digest = hmac.digest(pepper, b"iterations" + name.encode(), "sha256")
        place = int.from_bytes(digest[:8], "big") * self._users.total() >> 64
        for iterations, users in sorted(self._users.items()):
            if place < users:
                return iterations
            place -= users
        return self._usual

    def put(self, key: str, value: User, old: User | None) -> None:
        if old is not None:
            self._count(old, -1)
        self._count(value, 1)

    def delete(self, key: str, old: User) -> None:
        self._count(old, -1)

    def fresh(self) -> Self:
        return type(self)(self._usual)

    def swap(self, fresh: Self) -> None:
        self._users = fresh._users

    def _count(self, user: User, change: int) -> None:
        iterations = scram.iterations_of(enabled(user).scram)
        if iterations is not None:
            self._users[iterations] += change
            if not self._users[iterations]:
                del self._users[iterations]
