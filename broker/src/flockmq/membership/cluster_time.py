"""The cluster's time: what most cores' wall clocks say. Pure: the clock is passed in.

Whatever one node writes and another one compares is in this time: when a session, a message or a ban ends, when a
delayed message is due. Each node says with each heartbeat what its wall clock says, and what it takes for the cluster's
time; so nobody else is asked: Redis may be away, have a wrong clock, or give way to a replica with another one.

What always holds:
- Between two heartbeats, and while nobody is heard, the time goes on by the monotonic clock of the node.
- One core's clock that is wrong, or jumps, moves nothing, where there are three cores: the time follows the clocks of
  more than half of the configured cores, and only while these agree. It follows slowly, so it doesn't go back; if they
  all say for CLOCK_JUMP_AFTER_S that it is wrong by more than CLOCKS_AGREE_S, it jumps there.
- Where they don't agree it goes on as it is: the cores keep together, and who comes takes it from them.
- Until a node has heard what the time is, it is what its own wall clock says. Where no core knows it yet, and the
  clocks of more than half are heard but don't agree, it is what the slowest of them says: nothing ends too early.

A node of the first release says nothing of its clock, and writes what that says.
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


class Reading(msgspec.Struct, array_like=True, frozen=True):
    """What a node says of the time, in seconds since the epoch. `time_s`: the cluster's; 0: it doesn't know."""

    wall_s: float
    time_s: float


class _Heard(NamedTuple):
    """What a core said, less the monotonic time at which it came. `time_s`: None: it doesn't know."""

    wall_s: float
    time_s: float | None


class ClusterTime:
    """As one node knows it. `clock` has it for its wall clock."""

    def __init__(self, own: Clock, is_core: bool) -> None:
        self.clock: Final = Clock(own.monotonic, self.now_s)
        self.jumps = 0
        """How often the time was set, because most cores said so."""
        self._own = own
        self._is_core = is_core
        self._offset_s: float | None = None
        """The cluster's time less monotonic time."""
        self._heard: dict[str, _Heard] = {}
        self._looked_s = own.monotonic()
        self._off_for_s = 0.0
        """For how long most cores have said that it is wrong."""

    def now_s(self) -> float:
        offset_s = self._offset_s
        return self._own.wall() if offset_s is None else self._own.monotonic() + offset_s

    @property
    def off_s(self) -> float:
        """How far this node's wall clock is ahead of the cluster's time."""
        return self._own.wall() - self.now_s()

    def reading(self) -> Reading:
        return Reading(self._own.wall(), 0.0 if self._offset_s is None else self.now_s())

    def heard(self, core: str, reading: Reading) -> None:
        """An incarnation's. It was said a moment before, so it is behind by as long as it was under way."""
        now_s = self._own.monotonic()
        self._heard[core] = _Heard(reading.wall_s - now_s, reading.time_s - now_s if reading.time_s else None)

    def lost(self, core: str) -> None:
        """There is no link to it any more."""
        self._heard.pop(core, None)

    def look(self, cores: int) -> None:
        """Several times a second. `cores`: how many majorities are of."""
        now_s = self._own.monotonic()
        passed_s, self._looked_s = min(now_s - self._looked_s, LINK_HEARTBEAT_S), now_s
        heard = {name_of(core): said for core, said in self._heard.items()}
        walls = [said.wall_s for said in heard.values()]
        times = [said.time_s for said in heard.values() if said.time_s is not None]
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
        """A node that stood still hears first what was said meanwhile: it doesn't count for long."""
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
    """The middle of the most that agree; the earliest of several such groups; None: fewer than `enough` do."""
    ordered = sorted(offsets_s)
    if ordered and ordered[-1] - ordered[0] <= CLOCKS_AGREE_S:
        return median(ordered) if len(ordered) >= enough else None
    best: Sequence[float] = ()
    for first, lowest_s in enumerate(ordered):
        group = [offset_s for offset_s in ordered[first:] if offset_s - lowest_s <= CLOCKS_AGREE_S]
        if len(group) > len(best):
            best = group
    return median(best) if len(best) >= enough else None
