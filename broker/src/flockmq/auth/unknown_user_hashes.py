"""The hash that the password of an unknown user is checked against: no password matches it, but the check takes as long
as that of a user. No I/O.

Real users may have hashes of several algorithms and costs, from files or from before the configuration changed. One
fixed hash would reveal unknown users by the time of the answer.
"""

from __future__ import annotations

from collections.abc import Callable

from flockmq.auth import hashing
from flockmq.auth.user_revocation import enabled
from flockmq.auth.user_spread import UserSpread
from flockmq.rlog.schema import User


class UnknownUserHashes:
    """`spread` listens to the users table. `usual` is the hash while there are no users."""

    def __init__(self, usual: str, secret: Callable[[], bytes]) -> None:
        self.spread = UserSpread[str](_cost)
        self._usual = usual
        self._secret = secret

    def hash_for(self, name: str) -> str:
        cost = self.spread.chosen_for(name, b"hash", self._secret())
        return self._usual if cost is None else hashing.of_cost(cost)


def of_disabled(user: User) -> str:
    """For a disabled user, whose own hash isn't checked either."""
    cost = _cost(user)
    return "" if cost is None else hashing.of_cost(cost)


def _cost(user: User) -> str | None:
    return hashing.cost_of(enabled(user).password_hash)
