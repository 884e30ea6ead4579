"""What faults are done to and what is looked at, whether it is simulated (simulation/cluster.py) or real (lab.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from load.history import BoundPassed, NodeSeen, RowsLeft, TablesStood
from load.stage import Node


class Host(Protocol):
    """A core, a replicant, or a Redis: one process with a network and a disk of its own."""

    name: str

    async def start(self) -> None:
        """Again, if it was killed or drained."""

    async def kill(self) -> None:
        """SIGKILL, and stay down until `start`."""

    async def drain(self) -> None:
        """SIGTERM, as a pod that is deleted gets it, SIGKILL when its grace is over; and stay down until `start`."""

    def pause(self) -> None:
        """SIGSTOP."""

    def resume(self) -> None: ...

    def fill(self) -> None:
        """Not a byte is left on its volume; in a simulated Redis: in its memory."""

    def clear(self) -> None: ...

    def shift_clock(self, seconds: float, drift: float = 0.0) -> None:
        """Its wall clock is that much off from now on, and gains so much each second."""

    def slow_down(self, delay_s: float) -> None:
        """What it sends to anybody, and is sent, takes so much longer."""

    def lose(self, percent: float) -> None:
        """So much of what it sends to anybody, and is sent, must be sent again."""

    def stall_disk(self, stalls: bool) -> None:
        """No fsync of its returns while it does."""

    def fail_disk(self) -> None:
        """Its next fsync fails."""

    def corrupt(self) -> None:
        """While it is down: its largest file has a bit that is wrong."""


class NodeHost(Host, Protocol):
    def strain(self, iteration_s: float) -> None:
        """It has so much to do that each iteration of its event loop takes so long; 0.0: it hasn't any more."""

    def upgrade(self) -> None:
        """From its next start on it is of the newest release."""


class MemoryHost(Host, Protocol):
    """A Redis, or a simulated node."""

    def limit_memory(self, used_part: float) -> None:
        """It uses so much of what it may. 1: not a byte is left; 0: it may use all that there is."""


class RedisHost(MemoryHost, Protocol):
    def copy_data(self) -> None:
        """As a replica that hears nothing from now on."""

    def restore_copy(self) -> None: ...

    def empty(self) -> None: ...


class Cluster(Protocol):
    @property
    def hosts(self) -> Mapping[str, Host]:
        """By name."""

    @property
    def nodes(self) -> Mapping[str, Host]:
        """Cores and replicants among them."""

    @property
    def cores(self) -> Sequence[Host]: ...

    async def until_ready(self) -> None:
        """All nodes are, and Redis is what it was."""

    async def scale_cores(self, count: int) -> None:
        """As the operator does it; returns when it is done."""

    def fronts(self) -> Sequence[Node]:
        """Where clients may go: as a Service would say, some time after."""

    def cut(self, source: str, target: str) -> None:
        """Nothing that `source` sends comes to `target` any more; as often as it is cut it must be mended."""

    def mend(self, source: str, target: str) -> None: ...

    async def leader(self) -> Host | None: ...

    async def primary(self) -> Host | None:
        """The Redis that takes writes, where it has replicas."""

    @property
    def redis(self) -> Sequence[Host]: ...

    async def tables(self) -> list[TablesStood]:
        """Of all nodes that answer."""

    async def routes(self) -> list[RowsLeft]:
        """Of all nodes that answer."""

    async def look(self) -> list[NodeSeen | BoundPassed]:
        """How each node is that answers, now."""

    async def alarms(self) -> list[tuple[str, float]]:
        """Names, and since when by the wall clock."""

    def wall_s(self) -> float: ...
