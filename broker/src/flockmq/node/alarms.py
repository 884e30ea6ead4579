"""The cluster's alarms as a node shows them: the alarms in the log, and `redis-away`, which can't be written there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from flockmq.clock import Clock
from flockmq.management.view import REDIS_AWAY, AlarmRow
from flockmq.membership.readiness import OWN_AWAY, Readiness
from flockmq.rlog.rlog import Rlog
from flockmq.telemetry.sample import Sample

_WAITS: Final = "what is subscribed to, and what is for sessions that last, waits"


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
