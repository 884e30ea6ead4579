"""The secret behind what users are told who don't exist: a row of the log, which the leader makes once.

What stands behind it must stay, for what users are told who do exist stays too. The cluster's key doesn't: it stands in
only until there is the row, for which all nodes must be of a release that knows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flockmq.rlog.rlog import Rlog
from flockmq.rlog.shards import AUTH, SECRETS

_NAME: Final = "scram"
_BYTES: Final = 32


class Pepper:
    """`stand_in`: a secret that all nodes share. `may_write`: all of them know of such rows."""

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
        """The leader's: unless it is there. Raises StorageError."""
        if self._may_write() and self._rlog.tables.secrets.get(_NAME) is None:
            await self._rlog.write(AUTH, [SECRETS.put(_NAME, self._token_bytes(_BYTES))])
