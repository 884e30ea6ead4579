"""The clock of a node. Code that needs the time gets a `Clock` as an argument, so tests can pass another.

Values are in seconds. `monotonic` is for intervals within the process, `wall` for times that people or other systems
compare. For times that nodes compare, code gets the cluster's time: `membership.cluster_time.ClusterTime.clock`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple


class Clock(NamedTuple):
    monotonic: Callable[[], float]
    wall: Callable[[], float]

    def wall_ms(self) -> int:
        return int(self.wall() * 1000)


SYSTEM: Final = Clock(time.monotonic, time.time)
