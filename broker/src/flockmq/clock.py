"""What time it is, for all that a node runs: who needs it is handed a `Clock`, so that a test can hand in another.

In seconds. `monotonic` is for intervals within the process; `wall` for what people and outsiders compare. What nodes of
the cluster compare is in the cluster's time: who needs that is handed `membership.cluster_time.ClusterTime.clock`.
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
