"""Twice a second each node says how it is on all of its links, hears how the others are, and closes what is silent.

What always holds: `statuses` has what each linked node said last, and nothing of a node without a link.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from flockmq import bounds
from flockmq.cluster import frames
from flockmq.cluster.duties import CORE_ROLES, Duties
from flockmq.cluster.forwarding import Forwarding
from flockmq.cluster.frames import Status
from flockmq.cluster.link import Link
from flockmq.cluster.membership import Membership
from flockmq.cluster.mesh import Mesh
from flockmq.cluster.views import LocalStatus
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.shards import SHARDS

log: Final = logging.getLogger(__name__)


class Beats:
    """`rlog` and, on a core, `duties` are set before the first beat that is to tell of them."""

    def __init__(
        self,
        mesh: Mesh,
        members: Membership,
        forwarding: Forwarding,
        local_status: Callable[[], LocalStatus],
        leads: Callable[[], bool],
        is_core: bool,
    ) -> None:
        self.statuses: dict[str, Status] = {}
        self.rlog: Rlog | None = None
        self.duties: Duties | None = None
        self.appends = 0
        """Of other nodes, since the last beat: this core's weight."""
        self._mesh = mesh
        self._members = members
        self._forwarding = forwarding
        self._local_status = local_status
        self._leads = leads
        self._is_core = is_core
        self._loop = asyncio.get_running_loop()

    def greet(self, link: Link) -> None:
        """A link is up: the first heartbeat on it."""
        link.control(frames.Heartbeat(self.status()))

    def heard(self, link: Link, status: Status) -> None:
        self.statuses[link.peer.incarnation] = status
        if self.rlog is not None:
            for shard in SHARDS:
                if (head := status.heads.get(shard)) is not None:
                    self.rlog.note_head(shard, head)

    def lost(self, incarnation: str) -> None:
        """The last link to it ended."""
        self.statuses.pop(incarnation, None)

    def least_loaded_core(self) -> Link | None:
        """The link to the core with the least weight; draining ones come last."""
        cores = [link for link in self._mesh.links() if link.peer.role in CORE_ROLES]
        return min(cores, key=lambda link: self._weight(link.peer.incarnation), default=None)

    def status(self) -> Status:
        """What this node says about itself."""
        local = self._local_status()
        rlog, duties = self.rlog, self.duties
        if rlog is None:
            return Status(local.connections, local.routes, 0, local.ready, local.draining)
        core = rlog.core
        unreachable = tuple(duties.unreachable(self._loop.time())) if duties is not None else ()
        return Status(
            connections=local.connections,
            routes=local.routes,
            lag_entries=max(rlog.lag(shard)[0] for shard in SHARDS),
            ready=local.ready,
            draining=local.draining,
            weight=self.appends,
            heads={shard: rlog.applied(shard) for shard in SHARDS},
            unreachable=unreachable[: bounds.MEMBER_VOTES_MAX],
            leads=self._leads(),
            durable={shard: core.durable(shard) for shard in SHARDS} if core is not None else {},
        )

    async def run(self) -> None:
        """Until cancelled."""
        last = self._loop.time()
        while True:
            await asyncio.sleep(bounds.LINK_HEARTBEAT_S)
            now = self._loop.time()
            try:
                self._beat(now, stood_still=now - last > 3 * bounds.LINK_HEARTBEAT_S)
            except Exception:
                log.exception("a heartbeat failed")
            last = now

    def _beat(self, now: float, *, stood_still: bool) -> None:
        """`stood_still`: this node's own loop did, so silence proves nothing."""
        encoded = frames.control(frames.Heartbeat(self.status()))
        self.appends = 0
        if stood_still:
            self._members.count_anew(now)
        for link in self._mesh.links():
            link.send(encoded)
            if stood_still:
                link.heard_at = now
            elif now - link.heard_at > bounds.LINK_SILENT_MAX_S:
                link.close(f"nothing was heard on it for {bounds.LINK_SILENT_MAX_S} s")
            elif self._is_idle(link, now):
                self._mesh.release(link.peer.incarnation)
                link.close("it was idle")

    def _is_idle(self, link: Link, now: float) -> bool:
        if self._is_core or link.peer.role in CORE_ROLES or now - max(link.used_at, link.up_at) < bounds.PEER_IDLE_S:
            return False
        return self._forwarding.is_idle(link.peer.incarnation, now)

    def _weight(self, incarnation: str) -> tuple[int, int]:
        status = self.statuses.get(incarnation, Status())
        return status.draining, status.weight
