"""The secret from which the answers for unknown users are made: a row of the log, which the leader makes once.

Those answers must stay the same, because those for users that exist do. The cluster's key may be replaced, so it is
used only until the row is there; all nodes must be of a release that knows such rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import AUTH, SECRETS

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
        """Make the row, unless it is there. Only the leader does. Raises StorageError."""
        if self._may_write() and self._rlog.tables.secrets.get(_NAME) is None:
            await self._rlog.write(AUTH, [SECRETS.put(_NAME, self._token_bytes(_BYTES))])
