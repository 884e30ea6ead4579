"""Twice a second each node sends its status on all of its links, reads those of other nodes, and closes silent links.

Urgent news is sent at once: which nodes a core can't reach any more, that a node drains, and whether it hears Redis.
Invariants: `statuses` has the last status of each linked node, and no others. A heartbeat that waited while this
process stood still proves nothing: this node may have been purged since. So behind that another node counts as heard
only when it has acknowledged a heartbeat that was sent afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from flockmq import bounds
from flockmq.default_callbacks import never
from flockmq.membership import frames
from flockmq.membership.cluster_time import ClusterTime
from flockmq.membership.frames import Status
from flockmq.membership.link import Link
from flockmq.membership.membership_settings import LocalStatus
from flockmq.membership.mesh import Mesh
from flockmq.membership.reachability import CORE_ROLES, Reachability, name_of
from flockmq.rlog.digests import CheckpointDigests
from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.generation import reached_by_majority
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import SHARDS

log: Final = logging.getLogger(__name__)


class Heartbeats:
    """The plain attributes must be set before the first heartbeat that uses them."""

    def __init__(
        self,
        mesh: Mesh,
        members: Reachability,
        local_status: Callable[[], LocalStatus],
        time: ClusterTime,
        is_core: bool,
    ) -> None:
        self.statuses: dict[str, Status] = {}
        self.rlog: Rlog | None = None
        self.unreachable: Callable[[float], Collection[str]] = _nobody
        """On a core: its votes for purges, at a given time."""
        self.leads: Callable[[], bool] = never
        self.in_majority: Callable[[float], bool] = _always
        """On a core: whether it can reach a majority of the cores, at a given time."""
        self.count_cores: Callable[[], int] = _one
        """The number that majorities are of."""
        self.writes_through: Callable[[], str] = str
        """The core that this node writes through; "" for none."""
        self.replicants: Callable[[], int] = int
        """How many replicants write through this core."""
        self.stale: Callable[[], bool] = bool
        """Whether this node's tables may be stale."""
        self.is_new: Callable[[], bool] = bool
        """On a core: whether the cluster is new, as far as this core knows."""
        self.is_idle: Callable[[str, float], bool] = _is_idle
        """Whether no messages wait for a node and none were sent to it lately, at a given time."""
        self.look: Callable[[float], None] = _see_nothing
        """Called ten times a second, with the time."""
        self.appends = 0
        """Appends for other nodes since the last heartbeat: this core's load."""
        self._mesh = mesh
        self._members = members
        self._local_status = local_status
        self._time = time
        self._is_core = is_core
        self._received_at: dict[str, float] = {}
        self._stood_still = False
        self._news: object = None
        self._settled_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._looked_at = self._loop.time()
        """When `run` last had its turn."""

    @property
    def is_draining(self) -> bool:
        return self._local_status().draining

    def of(self, incarnation: str) -> Status:
        """Its last status; an empty one if it isn't linked."""
        return self.statuses.get(incarnation, _EMPTY_STATUS)

    def log_end_of(self, incarnation: str, shard: str) -> StreamId:
        """Up to where it had applied the shard's log when it last sent a heartbeat."""
        return self.of(incarnation).log_ends.get(shard, START)

    def is_heard(self, incarnation: str, now: float, within_s: float = bounds.MEMBER_VOTE_MAX_S) -> bool:
        """True if it sent a heartbeat lately."""
        received_at = self._received_at.get(incarnation)
        return received_at is not None and now - received_at <= within_s

    def is_fenced(self, now: float) -> bool:
        """True if this node may have been purged without knowing: it has not heard from a majority for
        MEMBER_FENCE_S."""
        if self._is_core:
            return not self.in_majority(now)
        return now - self._settled_at > bounds.MEMBER_FENCE_S

    def is_cut_off(self) -> bool:
        """This node hears nothing from Redis, but another node does."""
        if self.rlog is None or self.rlog.hears_redis():
            return False
        return any(status.hears_redis for status in self.statuses.values())

    def greet(self, link: Link) -> None:
        """A link is up: send the first heartbeat on it."""
        link.beat(frames.control(frames.Heartbeat(self.status())))

    def received(self, link: Link, heartbeat: frames.Heartbeat) -> None:
        self._notice_pause(self._loop.time())
        link.control(_HEARTBEAT_ACK)
        status = heartbeat.status
        self.statuses[link.peer.incarnation] = status
        if link.is_current:
            self._received_at[link.peer.incarnation] = link.heard_at
            if status.in_majority and not self._is_core:
                self._settled_at = link.heard_at
        if status.clocks is not None and link.peer.role in CORE_ROLES:
            self._time.received(link.peer.incarnation, status.clocks)
        if self.rlog is not None:
            for shard in SHARDS:
                if (log_end := status.log_ends.get(shard)) is not None:
                    self.rlog.note_log_end(shard, log_end)

    def lost(self, incarnation: str) -> None:
        """The last link to this node ended."""
        self.statuses.pop(incarnation, None)
        self._received_at.pop(incarnation, None)
        self._time.lost(incarnation)

    def status(self) -> Status:
        """This node's own status."""
        local = self._local_status()
        rlog = self.rlog
        if rlog is None:
            return Status(local.connections, local.routes, 0, local.ready, local.draining, clocks=self._time.reading())
        core, now = rlog.core, self._loop.time()
        return Status(
            connections=local.connections,
            routes=local.routes,
            lag_entries=max(rlog.lag(shard)[0] for shard in SHARDS),
            ready=local.ready,
            draining=local.draining,
            weight=self.appends,
            log_ends={shard: rlog.applied(shard) for shard in SHARDS},
            unreachable=tuple(sorted(self.unreachable(now)))[: bounds.MEMBER_VOTES_MAX],
            leads=self.leads(),
            durable={shard: core.durable(shard) for shard in SHARDS} if core is not None else {},
            checkpoints=_checkpoints(rlog) if core is not None else {},
            sending=core.sending() if core is not None else {},
            in_majority=self._is_core and self.in_majority(now),
            core=self.writes_through(),
            replicants=self.replicants(),
            clocks=self._time.reading(),
            hears_redis=rlog.hears_redis(),
            stale=self.stale(),
            is_new=self.is_new(),
            takes_clients=local.takes_clients,
            connect_wait_ms=round(local.connect_wait_s * 1000),
            rebalancing=local.rebalancing,
            durable_clients=local.durable_clients,
            messages_per_s=round(local.messages_per_s),
            has_too_much=local.has_too_much,
        )

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        self._looked_at = sent_at = self._loop.time()
        while True:
            await asyncio.sleep(bounds.LINK_LOOK_S)
            now = self._loop.time()
            self._notice_pause(now)
            stood_still, self._stood_still, self._looked_at = self._stood_still, False, now
            try:
                if now - sent_at >= bounds.LINK_HEARTBEAT_S or self._has_news(now):
                    sent_at = now
                    self._send_heartbeats(now, stood_still=stood_still)
                self._time.look(self.count_cores())
                self.look(now)
            except Exception:
                log.exception("a heartbeat failed")

    def _notice_pause(self, now: float) -> None:
        """Whether what arrived meanwhile is read before `run` goes on, or behind that, is the event loop's choice."""
        if not self._stood_still and now - self._looked_at > 3 * bounds.LINK_HEARTBEAT_S:
            self._stood_still = True
            for link in self._mesh.links():
                link.doubt()

    def _has_news(self, now: float) -> bool:
        hears_redis = self.rlog is None or self.rlog.hears_redis()
        news = self.is_draining, hears_redis, frozenset(self.unreachable(now))
        if news == self._news:
            return False
        self._news = news
        return True

    def _send_heartbeats(self, now: float, *, stood_still: bool) -> None:
        """`stood_still`: this process was paused, so the silence of others proves nothing."""
        encoded = frames.control(frames.Heartbeat(self.status()))
        self.appends = 0
        self._note_cores()
        if stood_still:
            self._members.restart_timers(now)
        for link in self._mesh.links():
            link.beat(encoded)
            if stood_still:
                link.heard_at = link.answered_at = now
            elif now - link.heard_at > bounds.LINK_SILENT_MAX_S:
                link.close(f"nothing was heard on it for {bounds.LINK_SILENT_MAX_S} s")
            elif now - link.answered_at > bounds.LINK_UNANSWERED_MAX_S:
                link.close(
                    f"it acknowledged no heartbeat for {bounds.LINK_UNANSWERED_MAX_S} s, though it sends its own"
                )
            elif self._is_unused(link, now):
                self._mesh.release(link.peer.incarnation)
                link.close("it was idle")

    def _note_cores(self) -> None:
        """Tell the log how far a majority of the cores is, and which digests they have."""
        rlog = self.rlog
        if rlog is None:
            return
        cores = {name_of(core): core for core in self._mesh.linked_cores()}
        count = self.count_cores()
        for shard in SHARDS:
            positions = [self.log_end_of(core, shard) for core in cores.values()]
            if rlog.core is not None:
                positions.append(rlog.applied(shard))
            rlog.majority_reached(shard, reached_by_majority(positions, count))
            checked = [self.of(core).checkpoints.get(shard) for core in cores.values()]
            rlog.compare(shard, [found for found in checked if found is not None], count)

    def _is_unused(self, link: Link, now: float) -> bool:
        """True if no link to that node is used: when one link ends, the others are closed too."""
        incarnation = link.peer.incarnation
        if self._is_core or link.peer.role in CORE_ROLES:
            return False
        if any(now - max(one.used_at, one.up_at) < bounds.PEER_IDLE_S for one in self._mesh.links_of(incarnation)):
            return False
        return self.is_idle(incarnation, now)


def _checkpoints(rlog: Rlog) -> dict[str, CheckpointDigests]:
    found = ((shard, rlog.checkpoint(shard)) for shard in SHARDS)
    return {shard: checked for shard, checked in found if checked is not None}


_HEARTBEAT_ACK: Final = frames.HeartbeatAck()
_EMPTY_STATUS: Final = Status()


def _nobody(now: float) -> Collection[str]:
    """Only cores vote."""
    return ()


def _one() -> int:
    return 1


def _always(now: float) -> bool:
    return True


def _is_idle(incarnation: str, now: float) -> bool:
    return True


def _see_nothing(now: float) -> None: ...
