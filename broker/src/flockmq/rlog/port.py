"""How a node reaches a core. The cluster implements it over its links; a core's own is local (core.py)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from flockmq.rlog.entry import StreamId


class CorePort(Protocol):
    """Any core will do, and another one at each call: numbers make a repeated append harmless.

    All raise LogUnavailable when no core can be reached or the core was lost before it answered; errors of the log
    itself (errors.py) come through as they are.
    """

    async def register(self, shard: str, incarnation: str) -> StreamId:
        """Make this incarnation known to the shard. Raises LogRefused if it was purged."""
        ...

    async def append(self, shard: str, incarnation: str, first: int, transactions: Sequence[bytes]) -> StreamId:
        """Commit transactions numbered `first`, `first + 1`, …; those that were committed before are not again.
        Returns the Stream ID at which all of them are applied. Raises LogRefused, LogGap."""
        ...

    def bootstrap(self, shard: str) -> AsyncGenerator[bytes]:
        """The core's tables of a shard as frames (bootstrap.py), each at most a few 100 KiB plus one row. Close the
        iterator to stop early."""
        ...
