"""The secret from which nodes derive SCRAM salts for unknown users: a row of the log, which the leader writes once.

An unknown user must always get the same salt, as a real user does; otherwise an attacker could tell them apart. So the
secret never changes, even when the cluster key is replaced. Until the row exists, the cluster key is used instead. The
leader writes the row when all nodes run a release that knows this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import AUTH, SECRETS

_NAME: Final = "scram"
_BYTES: Final = 32


class UnknownUserSecret:
    """`stand_in` is a secret that all nodes share. `may_write` tells whether all nodes know this table."""

    def __init__(
        self, rlog: Rlog, stand_in: bytes, may_write: Callable[[], bool], token_bytes: Callable[[int], bytes]
    ) -> None:
        self._rlog = rlog
        self._stand_in = stand_in
        self._may_write = may_write
        self._token_bytes = token_bytes

    def get(self) -> bytes:
        made = self._rlog.tables.secrets.get(_NAME)
        return self._stand_in if made is None else made

    async def make(self) -> None:
        """Write the row if it is missing. Only the leader calls this. Raises StorageError."""
        if self._may_write() and self._rlog.tables.secrets.get(_NAME) is None:
            await self._rlog.write(AUTH, [SECRETS.put(_NAME, self._token_bytes(_BYTES))])
