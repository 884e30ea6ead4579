"""Takes cores off the cluster for an operator: this one leaves, or a dead one is forgotten.

    leave:   membership/core_removal.py: may it go? ─▶ it drains ─▶ may it still go? ─▶ a file on its disk
             ─▶ the process ends, as by SIGTERM
    forget:  is it dead? ─▶ may it go? ─▶ the leader has purged it

There is no list of cores beside the members in the log, where a leader purges whoever left or is dead, and the number
that each node is configured with. So neither changes anything but the members; nobody's configuration is written.

Invariants: of cores that are told to leave at the same time none goes that the others wouldn't let go: each drains
before it looks again, so of any two at least one sees that the other drains. A core that was told to leave doesn't join
again, even if it crashes before it has left: the file is on disk before that is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from flockmq.bounds import FORGET_WAIT_S, LEAVE_BEGINS_S, LEAVE_HEARD_S, LINK_LOOK_S
from flockmq.clock import Clock
from flockmq.default_callbacks import ignore
from flockmq.management.view import ClusterState, Conflict, CoresView, Forgotten, Leaving, Member, Unavailable
from flockmq.membership.cluster import Cluster
from flockmq.membership.core_removal import StayingCore, obstacle
from flockmq.membership.reachability import CORE_ROLES, name_of
from flockmq.node import left_cluster
from flockmq.node.cluster_overview import ClusterOverview
from flockmq.node.evacuation import Evacuation
from flockmq.rlog.disk import Disk

log: Final = logging.getLogger(__name__)


class CoreAdmin(CoresView):
    """One per node. `disk` and `end` are set before the node serves requests."""

    def __init__(self, cluster: Cluster, overview: ClusterOverview, evacuation: Evacuation, clock: Clock) -> None:
        self.disk: Disk | None = None
        """A core's folder."""
        self.end: Callable[[], None] = ignore
        """Ends this process in order, as SIGTERM does."""
        self._cluster = cluster
        self._overview = overview
        self._evacuation = evacuation
        self._clock = clock
        self._ends: asyncio.TimerHandle | None = None
        self._leaving = asyncio.Lock()

    async def leave(self) -> Leaving:
        me, disk = self._cluster.settings.name, self.disk
        if self._cluster.settings.role != "core" or disk is None:
            raise Conflict(f"{me} is no core of a cluster: stop its process to end it")
        async with self._leaving:  # or one that is refused would end the draining of another
            state = await self._checked(me)
            mine = next((node for node in state.nodes if node.name == me), None)
            clients, slots = (0, 0) if mine is None else (mine.connections, mine.slots)
            if self._ends is None:
                await self._begin(me, disk)
        return Leaving(node=me, clients=clients, slots=slots, file=str(disk.path(left_cluster.FILE)))

    async def _begin(self, me: str, disk: Disk) -> None:
        """Drain, and then leave, or go on as before. Raises Conflict, Unavailable."""
        was_wanted, is_left = self._evacuation.is_wanted, False
        self._evacuation.start()
        try:
            await asyncio.sleep(LEAVE_HEARD_S)
            await self._checked(me)
            if not self._evacuation.is_wanted:
                raise Conflict(f"{me} stays: somebody has ended its evacuation meanwhile")
            await self._write(disk)
            is_left = True
        finally:
            if not (was_wanted or is_left):
                self._evacuation.stop()
        log.info(
            "an operator has this core leave its cluster; until %s is deleted it doesn't start again",
            disk.path(left_cluster.FILE),
        )
        self._ends = asyncio.get_running_loop().call_later(LEAVE_BEGINS_S, self.end)

    async def _write(self, disk: Disk) -> None:
        try:
            await asyncio.to_thread(left_cluster.write, disk, self._clock.wall())
        except OSError as error:
            raise Unavailable(f"{disk.path(left_cluster.FILE)} can't be written: {error.strerror}") from None

    async def forget(self, name: str) -> Forgotten:
        if not self._cluster.is_core:
            raise Conflict(f"{self._cluster.settings.name} is no core: ask a core")
        if name == self._cluster.settings.name:
            raise Conflict(f"{name} is the node that you ask: use leave to have it go")
        if any(info.name == name and info.role not in CORE_ROLES for info in self._cluster.nodes_table.values()):
            raise Conflict(f"{name} is a replicant, and no majority counts it: stop its process to have it go")
        self._check_dead(name)
        await self._checked(name)
        await self._until_purged(name)
        cores = {name_of(core) for core in self._cluster.nodes_table.cores}
        return Forgotten(node=name, cores=sorted(cores))

    async def _checked(self, going: str) -> ClusterState:
        """The cluster's state, by which `going` may go. Raises Conflict, Unavailable."""
        state = await self._overview.members()
        details = await self._overview.details()
        staying = [
            StayingCore(
                node.name, _is_ready(node), None if (told := details.get(node.incarnation)) is None else told.cores
            )
            for node in state.nodes
            if node.role in CORE_ROLES and node.name != going
        ]
        if why := obstacle(going, staying):
            raise Conflict(f"{going} can't go: {why}")
        if state.leader is None:
            raise Unavailable("no core leads the cluster, and only a leader changes who is a member")
        return state

    def _check_dead(self, name: str) -> None:
        """Raises Conflict if this core has a link to it."""
        if any(name_of(core) == name for core in self._cluster.mesh.linked_cores()):
            raise Conflict(f"{name} is alive: {self._cluster.settings.name} has a link to it; tell it to leave instead")

    async def _until_purged(self, name: str) -> None:
        """Return when it is no member. Raises Conflict."""
        try:
            async with asyncio.timeout(FORGET_WAIT_S):
                while self._is_member(name):
                    await asyncio.sleep(LINK_LOOK_S)
                    self._check_dead(name)
        except TimeoutError:
            raise Conflict(f"{name} is still a member: {self._who_reaches(name)}") from None

    def _is_member(self, name: str) -> bool:
        return any(name_of(core) == name for core in self._cluster.nodes_table.cores)

    def _who_reaches(self, name: str) -> str:
        """Why the leader doesn't purge it."""
        cluster = self._cluster
        others = [core for core in cluster.nodes_table.cores if name_of(core) not in (name, cluster.settings.name)]
        statuses = {name_of(core): cluster.status_of(core) for core in others}
        reaching = [
            core
            for core, status in sorted(statuses.items())
            if status is not None and name not in map(name_of, status.unreachable)
        ]
        if reaching:
            return f"{', '.join(reaching)} can reach it; mend the network, or tell it to leave"
        return "the leader hasn't purged it yet; try again"


def _is_ready(node: Member) -> bool:
    return node.heard and node.ready and not node.draining and node.hears_redis is not False
