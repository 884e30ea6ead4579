"""How a node reaches a core, and how cores ask each other for votes. The cluster implements both over its links. A
core's own CorePort is local (core.py)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from flockmq.rlog.entry import StreamId
from flockmq.rlog.generation import Report


class CorePort(Protocol):
    """Any core will do, and each call may use another one: sequence numbers make a repeated append harmless.

    All methods raise StorageUnavailable when no core can be reached, or the core was lost before it answered. Errors of
    the log itself (errors.py) are passed on.
    """

    async def register(self, shard: str, incarnation: str) -> StreamId:
        """Register this incarnation in the shard. Raises LogRefused if it was purged."""
        ...

    async def append(self, shard: str, incarnation: str, first: int, transactions: Sequence[bytes]) -> StreamId:
        """Commit transactions numbered `first`, `first + 1`, …. Those committed before are skipped. Return the Stream
        ID at which all of them are applied. Raises LogRefused, LogGap."""
        ...

    def bootstrap(self, shard: str) -> AsyncGenerator[bytes]:
        """The core's tables of a shard as frames (snapshot_stream.py), each at most a few 100 KiB plus one row. Close
        the iterator to stop early."""
        ...


class VotePort(Protocol):
    """Asks the other cores for reports (generation.py)."""

    @property
    def cores(self) -> int:
        """The number of configured cores, this one included. Majorities are of this number."""
        ...

    async def ask(self, shard: str, generation: int) -> list[Report]:
        """Ask all cores that can be reached now to report and to promise the generation (0: only report)."""
        ...

    async def have_reached(self, shard: str, position: StreamId, needed: int) -> bool:
        """True as soon as so many other cores are known to have applied all up to the position; False if too few have,
        or answer."""
        ...


class SingleCore:
    """The VotePort of a cluster with one core."""

    cores = 1

    async def ask(self, shard: str, generation: int) -> list[Report]:
        return []

    async def have_reached(self, shard: str, position: StreamId, needed: int) -> bool:
        return needed <= 0
