"""The cluster's alarms as a node shows them: the alarms in the log, and `redis-away`, which can't be written there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from flockmq.bounds import CLOCK_OFF_MAX_S
from flockmq.clock import Clock
from flockmq.management.view import REDIS_AWAY, AlarmRow
from flockmq.membership.cluster import Cluster
from flockmq.membership.readiness import OWN_AWAY, Readiness
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import Rlog
from flockmq.telemetry.sample import Sample

_WAITS: Final = "what is subscribed to, and what is for durable sessions, waits"


class Alarms:
    """A `management.view.AlarmsView`."""

    def __init__(self, rlog: Rlog, readiness: Readiness, clock: Clock) -> None:
        self._rlog = rlog
        self._readiness = readiness
        self._clock = clock

    def rows(self) -> Sequence[AlarmRow]:
        """All alarms, the oldest first."""
        rows = [
            AlarmRow(name=name, since_s=alarm.since_s, text=alarm.text)
            for name, alarm in self._rlog.tables.alarms.items()
        ]
        return sorted([*rows, *self._redis_away()], key=lambda row: row.since_s)

    def _redis_away(self) -> Iterator[AlarmRow]:
        if not self._rlog.hears_redis() and not self._readiness.is_cut_off:
            since_s = self._clock.wall() - self._rlog.redis_silent_s()
            text = f"no node reaches Redis, or one of its servers: {_WAITS}; look at Redis"
            if own_trouble := self._readiness.own_trouble():
                text = f"{OWN_AWAY}: {_WAITS}; {own_trouble}"
            yield AlarmRow(name=REDIS_AWAY, since_s=since_s, text=text)

    def samples(self) -> Iterator[Sample]:
        yield Sample("flockmq_alarms", len(self.rows()))

    async def end(self, name: str) -> bool:
        is_there = self._rlog.tables.alarms.get(name) is not None
        if is_there:
            await self._rlog.end_alarm(name)
        return is_there


_UNREADABLE: Final = "sessions-unreadable/"


class SlotAlarms:
    """The alarms `sessions-unreadable/SLOT`: the slot's owner raises one for sessions that it can't read. `runs_here`
    tells whether this node owns a slot and has loaded it.

    Invariants: an alarm that can't be written while the log is unavailable is written later. An alarm of a former owner
    is cleared once the new owner has loaded all sessions.
    """

    def __init__(self, rlog: Rlog, runs_here: Callable[[int], bool]) -> None:
        self._rlog = rlog
        self._runs_here = runs_here
        self._texts: dict[int, str] = {}
        """Slot → text of its alarm."""

    def update(self, slot: int, text: str, *, is_ours: bool = True) -> None:
        """As `durable.ports.HostPort.alarm`."""
        if text:
            self._texts[slot] = text
        else:
            self._texts.pop(slot, None)
        if is_ours:
            self._look_at(slot)

    def look(self) -> None:
        names = [name for name, _ in self._rlog.tables.alarms.items() if name.startswith(_UNREADABLE)]
        slots = [int(digits) for name in names if (digits := name.removeprefix(_UNREADABLE)).isdigit()]
        for slot in dict.fromkeys((*slots, *self._texts)):
            if slot in self._texts or self._runs_here(slot):
                self._look_at(slot)

    def _look_at(self, slot: int) -> None:
        name, text = f"{_UNREADABLE}{slot}", self._texts.get(slot, "")
        alarm = self._rlog.tables.alarms.get(name)
        if text and (alarm is None or alarm.text != text):
            self._rlog.raise_alarm(name, text)
        elif not text and alarm is not None:
            self._rlog.clear_alarm(name)


_PREFIX: Final = "clock/"


class ClockAlarm:
    """The alarm `clock/NODE`: the node's wall clock differs from the cluster's time.

    Invariants: the alarm exists while the node is a member and its clock is off by more than CLOCK_OFF_MAX_S. The
    broker itself uses the cluster's time, so no promise to clients depends on this clock (membership/cluster_time.py).
    """

    def __init__(self, name: str, cluster: Cluster, rlog: Rlog) -> None:
        self._name = name
        self._cluster = cluster
        self._rlog = rlog
        self._was_off = False

    def look(self) -> None:
        """Check the clock; called every few seconds. The alarm is raised if the clock is off in two checks in a row."""
        off_s = self._cluster.time.off_s
        was_off, self._was_off = self._was_off, abs(off_s) > CLOCK_OFF_MAX_S
        alarm, exists = _PREFIX + self._name, self._rlog.tables.alarms.get(_PREFIX + self._name) is not None
        if self._was_off and was_off and not exists:
            way = "ahead of" if off_s > 0 else "behind"
            text = f"the clock of {self._name} is {abs(off_s):.1f} s {way} the cluster's time: have NTP set it"
            self._rlog.raise_alarm(alarm, text)
        elif exists and not self._was_off:
            self._end(alarm)
        if self._cluster.is_leader:
            end_alarms_of_former_members(_PREFIX, self._cluster, self._rlog)

    def _end(self, alarm: str) -> None:
        self._rlog.end_alarm(alarm).add_done_callback(_look_again)


def end_alarms_of_former_members(prefix: str, cluster: Cluster, rlog: Rlog) -> None:
    """End the alarms `prefix` NAME of nodes that aren't members any more. Only the leader calls this."""
    members = {info.name for info in cluster.nodes_table.values()}
    for alarm, _ in list(rlog.tables.alarms.items()):
        if alarm.startswith(prefix) and alarm.removeprefix(prefix) not in members:
            rlog.end_alarm(alarm).add_done_callback(_look_again)


def _look_again(written: asyncio.Future[StreamId]) -> None:
    """Ignore a failed write: the next check writes again."""
    if not written.cancelled():
        written.exception()
