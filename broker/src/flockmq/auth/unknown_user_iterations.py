"""The SCRAM iteration count in the challenge for an unknown user. No I/O.

Real users may have different counts, from changes of the configuration. A fixed count would reveal unknown users.
"""

from __future__ import annotations

from flockmq.auth import scram
from flockmq.auth.user_revocation import enabled
from flockmq.auth.user_spread import UserSpread
from flockmq.rlog.schema import User


class UnknownUserIterations:
    """`spread` listens to the users table. `usual` is the count while no user has a verifier."""

    def __init__(self, usual: int) -> None:
        self.spread = UserSpread[int](_iterations)
        self._usual = usual

    def count_for(self, name: str, secret: bytes) -> int:
        return self.spread.chosen_for(name, b"iterations", secret) or self._usual


def _iterations(user: User) -> int | None:
    return scram.iterations_of(enabled(user).scram)
