"""What time it is, for all that a node runs. Who needs the time is handed a `Clock`, so a test can hand in another.

In seconds. `monotonic` is for intervals within the process, `wall` for times that people and outsiders compare. Times
that nodes compare are of the cluster's time: who needs it is handed `membership.cluster_time.ClusterTime.clock`.
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
