"""The SCRAM iteration count in the challenge for an unknown user. No I/O.

Real users may have different counts, from changes of the configuration. A fixed count would reveal unknown users.

Invariants: over all unknown names, the counts have the same distribution as those of real users. The count for one name
changes no more often than that of a real user.
"""

from __future__ import annotations

import hmac
from collections import Counter
from typing import Self

from flockmq.auth import scram
from flockmq.auth.user_revocation import enabled
from flockmq.rlog.schema import User


class UnknownUserIterations:
    """A listener of the users table. `usual` is the count while no user has a verifier."""

    def __init__(self, usual: int) -> None:
        self._usual = usual
        self._users: Counter[int] = Counter()
        """Iteration count → number of users that have it."""

    def count_for(self, name: str, secret: bytes) -> int:
        digest = hmac.digest(secret, b"iterations" + name.encode(), "sha256")
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
