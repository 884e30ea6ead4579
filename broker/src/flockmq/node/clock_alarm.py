"""The alarm `clock/NODE`: the node's wall clock differs from the cluster's time.

Invariants: the alarm exists while the node is a member and its clock is off by more than CLOCK_OFF_MAX_S. The broker
itself uses the cluster's time, so no promise to clients depends on this clock (membership/cluster_time.py).
"""

from __future__ import annotations

import asyncio
from typing import Final

from flockmq.bounds import CLOCK_OFF_MAX_S
from flockmq.membership.cluster import Cluster
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import Rlog

_PREFIX: Final = "clock/"


class ClockAlarm:
    def __init__(self, name: str, cluster: Cluster, rlog: Rlog) -> None:
        self._name = name
        self._cluster = cluster
        self._rlog = rlog
        self._was_off = False

    def look(self) -> None:
        """Check the clock; called every few seconds. The alarm is raised if the clock is off in two checks in a row."""
        off_s = self._cluster.time.off_s
        was_off, self._was_off = self._was_off, abs(off_s) > CLOCK_OFF_MAX_S
        alarm, stands = _PREFIX + self._name, self._rlog.tables.alarms.get(_PREFIX + self._name) is not None
        if self._was_off and was_off and not stands:
            way = "ahead of" if off_s > 0 else "behind"
            text = f"the clock of {self._name} is {abs(off_s):.1f} s {way} the cluster's time: have NTP set it"
            self._rlog.raise_alarm(alarm, text)
        elif stands and not self._was_off:
            self._end(alarm)
        if self._cluster.is_leader:
            self._end_those_of_strangers()

    def _end_those_of_strangers(self) -> None:
        """End the alarms of nodes that aren't members any more."""
        members = {view.name for view in self._cluster.nodes()}
        for alarm, _ in list(self._rlog.tables.alarms.items()):
            if alarm.startswith(_PREFIX) and alarm.removeprefix(_PREFIX) not in members:
                self._end(alarm)

    def _end(self, alarm: str) -> None:
        self._rlog.end_alarm(alarm).add_done_callback(_look_again)


def _look_again(written: asyncio.Future[StreamId]) -> None:
    """Ignore a failed write: the next check writes again."""
    if not written.cancelled():
        written.exception()
