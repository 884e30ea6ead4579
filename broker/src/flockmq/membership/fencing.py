"""Whether this node may act as a member: whether it is sure that the cluster hasn't gone on without it.

A node that is cut off may be purged, and not know it. What always holds: from MEMBER_FENCE_S after it heard of a
majority of the cores last it is fenced, and acknowledges nothing that needs others; the leader waits longer before it
purges anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from flockmq import bounds
from flockmq.membership.heartbeats import Heartbeats
from flockmq.membership.leader import Leader
from flockmq.membership.leader_duties import LeaderDuties
from flockmq.membership.members import Members
from flockmq.membership.mesh import Mesh
from flockmq.membership.reachability import electorate, is_settled, may_lead, name_of
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import CLUSTER


class Fencing:
    """`me` tells this node's incarnation, `cores` how many are configured. `Cluster` sets the plain attributes."""

    def __init__(
        self,
        me: Callable[[], str],
        is_core: bool,
        cores: int,
        members: Members,
        mesh: Mesh,
        beats: Heartbeats,
    ) -> None:
        self.is_joined = False
        self.rlog: Rlog | None = None
        self.duties: LeaderDuties | None = None
        self.leading: Leader | None = None
        self.doubts: Callable[[float], bool] = _never
        """Whether it was out of touch, and its tables haven't reached what was said since, at a time."""
        self._me = me
        self._is_core = is_core
        self._configured = cores
        self._members = members
        self._mesh = mesh
        self._beats = beats
        self._loop = asyncio.get_running_loop()
        self._judged_at = -1.0
        self._was_settled = False
        self._compared_at = -1.0
        self._keeps_up = False

    @property
    def is_fenced(self) -> bool:
        """This node was purged and isn't back yet, or heard of no majority of the cores for MEMBER_FENCE_S and may have
        been: it acknowledges nothing that needs others."""
        return not self.is_joined or self._beats.is_fenced(self._loop.time())

    @property
    def is_surely_member(self) -> bool:
        """Neither fenced, nor behind in the log of members and slots for so long: slots that are this node's are nobody
        else's."""
        now = self._loop.time()
        if now != self._compared_at:  # as in `is_settled`
            assert self.rlog is not None
            self._compared_at = now
            self._keeps_up = self.rlog.lag(CLUSTER)[1] <= bounds.MEMBER_FENCE_S * 1000
        return self.is_joined and self._keeps_up and not self._beats.is_fenced(now)

    @property
    def may_be_purged(self) -> bool:
        """It was, or was out of touch and hasn't caught up since: others may have what is on its way to this node."""
        return self._me() not in self._members or self.doubts(self._loop.time())

    def is_settled(self, now: float) -> bool:
        """Whether this node, if it is a core, belongs to the side of a split that goes on."""
        if self.duties is None:
            return True
        if now != self._judged_at:  # it is asked for each CONNECT, and the loop's time stands still in a turn
            holds_lease = self.leading is not None and self.leading.holds_lease
            self._judged_at = now
            self._was_settled = is_settled(*self.duties.voices(now, bounds.MEMBER_FENCE_S), holds_lease)
        return self._was_settled

    def hears_majority(self) -> bool:
        """Whoever says it, members or not: after a purge it may be that no core is one."""
        now = self._loop.time()
        if not self._is_core:
            return not self._beats.is_fenced(now)
        me = name_of(self._me())
        heard = {name_of(core) for core in self._mesh.linked_cores() if self._beats.is_heard(core, now)} - {me}
        return may_lead(1 + len(heard), self.count_cores())

    def count_cores(self) -> int:
        """As configured; or else all that are members, or linked though they aren't yet."""
        cores = {*self._members.cores, *self._mesh.linked_cores()}
        if self._is_core:
            cores.add(self._me())
        return electorate(self._configured, cores)


def _never(now: float) -> bool:
    return False
