"""How a node reaches a core, and a core the others. The cluster implements both over its links; a core's own CorePort
is local (core.py)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from flockmq.rlog.entry import StreamId
from flockmq.rlog.generation import Report


class CorePort(Protocol):
    """Any core will do, and another one at each call: numbers make a repeated append harmless.

    All raise StorageUnavailable when no core can be reached or the core was lost before it answered; errors of the log
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
        """The core's tables of a shard as frames (snapshot_stream.py), each at most a few 100 KiB plus one row. Close
        the iterator to stop early."""
        ...


class Ballot(Protocol):
    """The other cores, as one of them asks them for reports (generation.py)."""

    @property
    def cores(self) -> int:
        """How many are configured, this one included: majorities are of this number."""
        ...

    async def ask(self, shard: str, generation: int) -> list[Report]:
        """The reports of all other cores that can be heard of now, asked to promise the generation (0: none)."""
        ...


class Alone:
    """The ballot of a cluster's only core."""

    cores = 1

    async def ask(self, shard: str, generation: int) -> list[Report]:
        return []
