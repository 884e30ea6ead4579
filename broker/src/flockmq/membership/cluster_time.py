"""The cluster's time: what the wall clocks of most cores agree on. No I/O; the clock is passed in.

Times that one node writes and another compares are in the cluster's time: when a session, a message or a ban ends, and
when a delayed message is due. With each heartbeat a node sends its wall clock's time and its idea of the cluster's
time. Redis isn't asked: it may be unreachable, have a wrong clock, or be replaced by a replica with another clock.

Invariants:

- Between two heartbeats, and while no core is linked, the time advances with the node's monotonic clock.
- With three cores, one wrong or jumping clock changes nothing: the time follows the clocks of more than half of the
  configured cores, and only while these agree. It follows slowly, so it never goes back. Only if these clocks differ
  from it by more than CLOCKS_AGREE_S for CLOCK_JUMP_AFTER_S, it jumps to them.
- While the clocks don't agree, the time continues as it is. The cores stay together, and a new node takes it from them.
- A new node uses its own clock until it hears the cluster's time. If no core knows it and the clocks don't agree, the
  slowest clock is used, so that nothing expires too early.

A node of the first release doesn't send its clock, and uses its own for what it writes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

import msgspec

from flockmq.bounds import CLOCK_JUMP_AFTER_S, CLOCK_SLEW_S, CLOCKS_AGREE_S, LINK_HEARTBEAT_S
from flockmq.clock import Clock
from flockmq.membership.reachability import name_of

log: Final = logging.getLogger(__name__)


class ClockReading(msgspec.Struct, array_like=True, frozen=True):
    """A node's clock, in seconds since the epoch. `time_s`: the cluster's time; 0: it doesn't know it."""

    wall_s: float
    time_s: float


class _Received(NamedTuple):
    """What a core sent, minus the monotonic time of the arrival. `time_s` None: it doesn't know the cluster's time."""

    wall_s: float
    time_s: float | None


class ClusterTime:
    """The cluster's time on one node. `clock` uses it as the wall clock."""

    def __init__(self, own: Clock, is_core: bool) -> None:
        self.clock: Final = Clock(own.monotonic, self.now_s)
        self.jumps = 0
        """How often the time jumped."""
        self._own = own
        self._is_core = is_core
        self._offset_s: float | None = None
        """The cluster's time minus monotonic time."""
        self._received: dict[str, _Received] = {}
        self._looked_s = own.monotonic()
        self._off_for_s = 0.0
        """For how long this node's value of the cluster's time has disagreed with most cores."""

    def now_s(self) -> float:
        offset_s = self._offset_s
        return self._own.wall() if offset_s is None else self._own.monotonic() + offset_s

    @property
    def off_s(self) -> float:
        """How far this node's wall clock is ahead of the cluster's time."""
        return self._own.wall() - self.now_s()

    def reading(self) -> ClockReading:
        return ClockReading(self._own.wall(), 0.0 if self._offset_s is None else self.now_s())

    def received(self, core: str, reading: ClockReading) -> None:
        """Record a reading of an incarnation. It is late by the time that it was on its way."""
        now_s = self._own.monotonic()
        self._received[core] = _Received(reading.wall_s - now_s, reading.time_s - now_s if reading.time_s else None)

    def lost(self, core: str) -> None:
        """There is no link to it any more."""
        self._received.pop(core, None)

    def look(self, cores: int) -> None:
        """Adjust the time; several times a second. `cores`: the number that majorities are of."""
        now_s = self._own.monotonic()
        passed_s, self._looked_s = min(now_s - self._looked_s, LINK_HEARTBEAT_S), now_s
        heard = {name_of(core): reading for core, reading in self._received.items()}
        walls = [reading.wall_s for reading in heard.values()]
        times = [reading.time_s for reading in heard.values() if reading.time_s is not None]
        if self._is_core:
            walls.append(self._own.wall() - now_s)
            times += [] if self._offset_s is None else [self._offset_s]
        agreed_s = _agreed(walls, 1 + cores // 2)
        if self._offset_s is None:
            self._begin(agreed_s, walls, times, cores)
        else:
            self._follow(_agreed(times, 1 + cores // 2) if agreed_s is None else agreed_s, self._offset_s, passed_s)

    def _begin(self, agreed_s: float | None, walls: Sequence[float], times: Sequence[float], cores: int) -> None:
        if times:
            self._offset_s = _agreed(times, 1)
        elif agreed_s is None and 2 * len(walls) > cores:
            self._offset_s = min(walls)
        else:
            self._offset_s = agreed_s

    def _follow(self, target_s: float | None, offset_s: float, passed_s: float) -> None:
        """After a pause of this process, old readings come first. `passed_s` is limited, so they don't count for
        long."""
        off_s = 0.0 if target_s is None else target_s - offset_s
        if abs(off_s) <= CLOCKS_AGREE_S:
            self._off_for_s = 0.0
            most_s = passed_s * CLOCK_SLEW_S
            self._offset_s = offset_s + min(max(off_s, -most_s), most_s)
            return
        self._off_for_s += passed_s
        if self._off_for_s >= CLOCK_JUMP_AFTER_S:
            log.warning("the cluster's time jumps by %+.1f s: the clocks of most cores say so", off_s)
            self._off_for_s = 0.0
            self._offset_s = offset_s + off_s
            self.jumps += 1


def _agreed(offsets_s: Sequence[float], enough: int) -> float | None:
    """The median of the largest group that agrees; of several such groups the earliest. None: it has fewer than
    `enough`."""
    ordered = sorted(offsets_s)
    if ordered and ordered[-1] - ordered[0] <= CLOCKS_AGREE_S:
        return median(ordered) if len(ordered) >= enough else None
    best: Sequence[float] = ()
    for first, lowest_s in enumerate(ordered):
        group = [offset_s for offset_s in ordered[first:] if offset_s - lowest_s <= CLOCKS_AGREE_S]
        if len(group) > len(best):
            best = group
    return median(best) if len(best) >= enough else None
