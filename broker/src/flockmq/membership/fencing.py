"""Whether this node may act as a member: whether it is sure that it was not purged.

A node that is cut off may be purged without knowing it. Invariant: a node that hasn't heard from a majority of the
cores for MEMBER_FENCE_S fences itself: it acknowledges nothing that needs other nodes. The leader waits longer than
that before it purges a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from flockmq import bounds
from flockmq.default_callbacks import never
from flockmq.membership.heartbeats import Heartbeats
from flockmq.membership.leader import Leader
from flockmq.membership.leader_duties import LeaderDuties
from flockmq.membership.members import Members
from flockmq.membership.mesh import Mesh
from flockmq.membership.reachability import electorate, is_in_majority, may_lead, name_of
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import CLUSTER


class Fencing:
    """`me` returns this node's incarnation, `cores` is the configured number. `Cluster` sets the plain attributes."""

    def __init__(
        self, me: Callable[[], str], is_core: bool, cores: int, members: Members, mesh: Mesh, heartbeats: Heartbeats
    ) -> None:
        self.is_joined = False
        self.rlog: Rlog | None = None
        self.duties: LeaderDuties | None = None
        self.leading: Leader | None = None
        self.is_in_doubt: Callable[[float], bool] = never
        """Whether this node may have been purged without knowing it (`Staleness.is_in_doubt`)."""
        self._me = me
        self._is_core = is_core
        self._configured = cores
        self._members = members
        self._mesh = mesh
        self._heartbeats = heartbeats
        self._loop = asyncio.get_running_loop()
        self._judged_at = -1.0
        self._was_in_majority = False
        self._compared_at = -1.0
        self._keeps_up = False

    @property
    def is_fenced(self) -> bool:
        """This node was purged and hasn't rejoined, or it has not heard from a majority of the cores for MEMBER_FENCE_S
        and may have been purged. It acknowledges nothing that needs other nodes."""
        return not self.is_joined or self._heartbeats.is_fenced(self._loop.time())

    @property
    def is_confirmed_member(self) -> bool:
        """True if this node is not fenced and the lag of its cluster tables is below MEMBER_FENCE_S. So slots that its
        tables assign to it belong to no other core."""
        now = self._loop.time()
        if now != self._compared_at:  # cached, as in `is_in_majority`
            assert self.rlog is not None
            self._compared_at = now
            self._keeps_up = self.rlog.lag(CLUSTER)[1] <= bounds.MEMBER_FENCE_S * 1000
        return self.is_joined and self._keeps_up and not self._heartbeats.is_fenced(now)

    @property
    def may_be_purged(self) -> bool:
        """This node was purged, or was out of touch and hasn't caught up since: other nodes may have been given the
        messages on their way to it."""
        return self._me() not in self._members or self.is_in_doubt(self._loop.time())

    def is_in_majority(self, now: float) -> bool:
        """If this node is a core: whether it is on the side of a network split that continues."""
        if self.duties is None:
            return True
        if now != self._judged_at:  # called for each CONNECT; the loop's time is constant within an iteration
            holds_lease = self.leading is not None and self.leading.holds_lease
            self._judged_at = now
            self._was_in_majority = is_in_majority(
                *self.duties.reachable_cores(now, bounds.MEMBER_FENCE_S), holds_lease
            )
        return self._was_in_majority

    def hears_majority(self) -> bool:
        """True if a majority of the cores is linked. They needn't be members: after a purge perhaps no core is one."""
        now = self._loop.time()
        if not self._is_core:
            return not self._heartbeats.is_fenced(now)
        me = name_of(self._me())
        heard = {name_of(core) for core in self._mesh.linked_cores() if self._heartbeats.is_heard(core, now)} - {me}
        return may_lead(1 + len(heard), self.count_cores())

    def count_cores(self) -> int:
        """The configured number; if more cores are members or linked, their number."""
        cores = {*self._members.cores, *self._mesh.linked_cores()}
        if self._is_core:
            cores.add(self._me())
        return electorate(self._configured, cores)
