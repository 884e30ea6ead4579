"""A node's membership in the cluster: its links, the other members, and what they exchange.

    cluster = Cluster(settings, redis)             the callbacks are plain attributes, set before `start`
    delivery = Delivery(router.turn, cluster)      handles the links' frames of messages
    rlog = Rlog(cluster.incarnation, redis, port=cluster.core_port, votes=cluster.votes, …)
    cluster.watch(rlog)                            tables → members, slots; from here on a core serves its log
    session_rpc = SessionRpc(cluster, delivery.packets, clients, remote_sessions)
    await cluster.start()                          listens, dials
    await rlog.start()
    await cluster.join()                           writes this node's row; from here on a core may become the leader
    …
    await cluster.stop()                           leaves: the leader purges this incarnation at once
    delivery.stop()
    await rlog.stop()

Cores form a full mesh, and every other node links to every core. A link between two replicants is dialled when there
are messages for it, or goes through a core (`membership.tunnels`). Every node gets heartbeats on its links; from these
the leader decides which nodes to purge and how to assign slots. Each frame on a link goes to the handler of its kind
(`handlers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from flockmq import bounds, tasks
from flockmq.clock import SYSTEM as SYSTEM_CLOCK
from flockmq.clock import Clock
from flockmq.default_callbacks import ignore
from flockmq.entropy import SYSTEM, Entropy
from flockmq.membership import frames, replicant_balance, report_events, staleness
from flockmq.membership.cluster_time import ClusterTime
from flockmq.membership.cluster_version import ClusterVersion, Rollout
from flockmq.membership.cluster_version_row import ClusterVersionRow
from flockmq.membership.event_batches import EventBuffer
from flockmq.membership.fencing import Fencing
from flockmq.membership.frames import Status
from flockmq.membership.generation_votes import GenerationVotes
from flockmq.membership.handshake import Identity
from flockmq.membership.heartbeats import Heartbeats
from flockmq.membership.leader import Leader
from flockmq.membership.leader_duties import LeaderDuties
from flockmq.membership.link import Link, LinkHandlers
from flockmq.membership.link_listener import Bind
from flockmq.membership.link_requests import LinkLost
from flockmq.membership.log_client import LogClient
from flockmq.membership.log_server import LogServer
from flockmq.membership.members import Members
from flockmq.membership.membership_settings import LocalStatus, MembershipSettings
from flockmq.membership.mesh import Mesh, ViaCore
from flockmq.membership.reachability import CORE_ROLES, Reachability, new_incarnation
from flockmq.membership.readiness import Readiness
from flockmq.membership.replicant_balance import ReplicantBalance
from flockmq.membership.report_events import EventExport
from flockmq.membership.slot_table import SlotTable
from flockmq.membership.staleness import Staleness
from flockmq.redis.link import RedisConfig, RedisLinks
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import CLUSTER, NODES, SLOTS, VERSIONS, NodeInfo

log: Final = logging.getLogger(__name__)


class Cluster:
    """See the module's docstring. This is the LinkOwner of all links of the node."""

    def __init__(
        self,
        settings: MembershipSettings,
        redis: RedisConfig | None = None,
        bind: Bind | None = None,
        entropy: Entropy = SYSTEM,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.settings = settings
        self.incarnation = new_incarnation(settings.name, entropy=entropy)
        self.is_core = settings.role in CORE_ROLES
        self.version = ClusterVersion(settings.speaks)
        self.handlers = LinkHandlers()
        self.core_port = LogClient(self._choose_core)
        self.nodes_table = Members(self._node_put, self._node_deleted)
        self.slots = SlotTable()
        self.link_port = 0

        self.local_status: Callable[[], LocalStatus] = LocalStatus
        self.on_link_up: list[Callable[[Link], None]] = []
        self.on_link_down: list[Callable[[Link], None]] = []
        self.on_look: list[Callable[[], None]] = []
        """Called ten times a second, after the node has checked whether its tables are stale."""
        self.on_renamed: list[Callable[[str], None]] = []
        """This node continues as another incarnation. Its links are closed after these calls."""
        self.on_node_joined: list[Callable[[str], None]] = []
        self.on_node_gone: list[Callable[[str], None]] = []
        """An incarnation was purged."""
        self.on_link_lost: list[Callable[[str], None]] = []
        """A link to this node ended, and messages on their way there may be lost."""
        self.on_core_linked: list[Callable[[str], None]] = []
        """There is a new link to this core, or one of several was lost: what was sent to it may not have arrived."""
        self.on_purged: Callable[[], None] = ignore
        """This incarnation was purged: the log takes no more from it. `begin_anew` as another."""

        self._me = Identity(self.incarnation, settings.role)
        self._redis = redis
        self._loop = asyncio.get_running_loop()
        self.mesh = Mesh(
            self, self._me, settings.keys, self.version, settings.seeds, settings.certificates, bind, entropy
        )
        self._members = Reachability(settings.name, self._loop.time())
        self.time = ClusterTime(clock, self.is_core)
        self.heartbeats = Heartbeats(self.mesh, self._members, self._local, self.time, self.is_core)
        self.fencing = Fencing(self._who, self.is_core, settings.cores, self.nodes_table, self.mesh, self.heartbeats)
        self.votes = GenerationVotes(self.mesh.core_links, self.fencing.count_cores, self.heartbeats.log_end_of)
        buffer = EventBuffer(settings.name, self.incarnation)
        self.events = EventExport(buffer, self._choose_core, clock.monotonic)
        is_in_majority = self.fencing.is_in_majority if self.is_core else None
        self.staleness = Staleness(self.mesh, is_in_majority, settings.max_stale_s)
        self.readiness = Readiness()
        self._balance = ReplicantBalance(self._who, self.mesh, self.heartbeats)
        self._rlog: Rlog | None = None
        self._duties: LeaderDuties | None = None
        self._running: asyncio.Task[None] | None = None
        self._relays = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._introduce()

    def _introduce(self) -> None:
        """Connect the parts with each other and with the links."""
        self.fencing.is_in_doubt = self.staleness.is_in_doubt
        self.heartbeats.look = self._look
        self.heartbeats.stale = lambda: self.staleness.is_stale
        self.heartbeats.writes_through = self._writes_through
        self.heartbeats.replicants = self._balance.replicants
        self.handlers.controls[frames.Heartbeat] = self.heartbeats.received
        self.handlers.notes[report_events.NOTE] = self.events.received
        self.handlers.notes[staleness.NOTE] = self._log_ends_received
        self.handlers.notes[replicant_balance.NOTE] = self._move_received

    # --- life -------------------------------------------------------------------------------------------------------

    def watch(self, rlog: Rlog) -> None:
        """Follow the tables; a core also serves its log to other nodes. Call it before `rlog.start`."""
        self._rlog = self.heartbeats.rlog = self.staleness.rlog = self.fencing.rlog = rlog
        self.heartbeats.count_cores = self.fencing.count_cores
        rlog.on_change(NODES.name, self.nodes_table)
        rlog.on_change(SLOTS.name, self.slots)
        rlog.on_entry(CLUSTER, self.slots.entry_applied)
        rlog.on_change(VERSIONS.name, ClusterVersionRow(self.version, self.mesh).rows)
        if rlog.core is not None:
            LogServer(rlog.core, rlog, self.heartbeats, self.version.gate(2)).listen(self.handlers)
            rollout = Rollout(self.version.newest, self.settings.version_settle_s)
            duties = LeaderDuties(
                rlog, rlog.core, self._members, self.nodes_table, self.slots, self.heartbeats, self.settings.cores,
                rollout, self.mesh.spoken,
            )  # fmt: skip
            self._duties = self.fencing.duties = duties
            self.heartbeats.unreachable = duties.unreachable
            self.heartbeats.leads = lambda: self.is_leader
            self.heartbeats.in_majority = self.fencing.is_in_majority
            self.heartbeats.is_new = duties.is_new

    async def start(self) -> None:
        """Raises OSError when the link's port can't be bound."""
        if self.settings.listen is not None:
            self.link_port = await self.mesh.listener.listen(*self.settings.listen)
        self.mesh.start()
        self._keep(tasks.vital(self.heartbeats.run(), "cluster-beats"))

    async def join(self) -> None:
        """Become a member. Returns when this node's own tables show it, so never if its release is too old for the
        cluster. Raises StorageError."""
        assert self._rlog is not None
        while self.version.is_passed:  # noqa: ASYNC110 - whoever upgrades it ends it
            await asyncio.sleep(bounds.LINK_LOOK_S)
        me = self.settings
        info = NodeInfo(me.name, me.role, me.host, self.link_port, me.mqtt_port, me.version)
        await self._rlog.write(CLUSTER, [NODES.put(self.incarnation, info)])
        self.fencing.is_joined = True
        if self._redis is not None and self._rlog.core is not None and self._duties is not None:
            self.events.redis = self.events.redis or RedisLinks(self._redis)
            self.fencing.leading = Leader(self.incarnation, self._redis, self._rlog, self._rlog.core, self._duties)
            self._running = self._keep(tasks.vital(self.fencing.leading.run(), "cluster-leading"))
        if not self._relays:
            self._relays = True
            self._keep(tasks.restartable(self.events.run, "cluster-events"))

    async def take_new_incarnation(self) -> str:
        """After a purge, take a new incarnation, and return when a majority of the cores is linked again. Then call
        `rlog.rejoin` and `join`. Messages that other nodes haven't accepted are kept."""
        self.fencing.is_joined = False
        former, self.incarnation = self.incarnation, new_incarnation(self.settings.name, self.incarnation)
        log.warning("%s was purged from the cluster; this node goes on as %s", former, self.incarnation)
        if self.fencing.leading is not None and self._running is not None:
            await tasks.end(self._running)
            await self.fencing.leading.close()
            self.fencing.leading = None
        self._me = Identity(self.incarnation, self.settings.role)
        for callback in self.on_renamed:
            callback(self.incarnation)
        self.mesh.rename(self._me)
        while not self.fencing.hears_majority():  # noqa: ASYNC110 - it is a matter of time, too
            await asyncio.sleep(bounds.LINK_LOOK_S)
        return self.incarnation

    async def stop(self) -> None:
        """Leave the cluster. Stop serving clients first."""
        self.fencing.is_joined = False
        self.events.leave()
        if self._rlog is not None:
            self._rlog.leave()
        await tasks.end(*self._tasks)
        await self.events.flush()
        if self.fencing.leading is not None:
            await self.fencing.leading.leave()
        await self.mesh.stop()
        if self.fencing.leading is not None:
            await self.fencing.leading.close()
        if self.events.redis is not None:
            await self.events.redis.close()

    @property
    def is_leader(self) -> bool:
        return self.fencing.leading is not None and self.fencing.leading.leads

    def has_left(self, incarnation: str) -> bool:
        """It announced that it leaves for good."""
        return self._members.has_left(incarnation)

    def status_of(self, incarnation: str) -> Status | None:
        """The last status that a node sent; None if it isn't linked."""
        return (
            self.heartbeats.status() if incarnation == self.incarnation else self.heartbeats.statuses.get(incarnation)
        )

    # --- talking ----------------------------------------------------------------------------------------------------

    def on_note(self, method: str, handler: Callable[[str, bytes], None]) -> None:
        """Call `handler(incarnation, body)` for each notification of that method."""
        self.handlers.notes[method] = handler

    def is_linked(self, incarnation: str) -> bool:
        return self.mesh.link_of(incarnation) is not None

    def on_request(self, method: str, handler: Callable[[bytes], Awaitable[bytes]]) -> None:
        """`handler(body)` answers each request of that method."""
        self.handlers.requests[method] = lambda _, body: handler(body)

    async def ask(self, incarnation: str, method: str, body: bytes) -> bytes:
        """Send a request to a node and return its answer. Raises LinkLost (also if there is no link), Refusal."""
        link = self.mesh.link_of(incarnation)
        if link is None:
            raise LinkLost(f"there is no link to {incarnation or 'a core'}")
        return await link.request(method, body)

    def notify(self, incarnation: str, method: str, body: bytes) -> bool:
        """Send a notification. Every node has a link to every core. False: there is no link to this node, or it
        `is_backed_up`."""
        link = self.mesh.link_of(incarnation)
        if link is None or link.control_bytes > bounds.LINK_CONTROL_CHOKED_BYTES:
            return False
        link.note(method, body)
        return True

    def is_backed_up(self, incarnation: str) -> bool:
        """Too many notifications wait on the link to this node: don't send more. At LINK_CONTROL_MAX_BYTES the link is
        closed."""
        link = self.mesh.link_of(incarnation)
        return link is not None and link.control_bytes > bounds.LINK_CONTROL_CHOKED_BYTES

    def cut(self, incarnation: str) -> None:
        """A notification had to be dropped: close the links, so that both ends start again on a new one."""
        self._cut(incarnation, "too many notifications wait for it")

    def _cut(self, incarnation: str, reason: str) -> None:
        for link in list(self.mesh.links_of(incarnation)):
            link.close(reason)

    # --- LinkOwner --------------------------------------------------------------------------------------------------

    def link_up(self, link: Link) -> None:
        incarnation = link.peer.incarnation
        self.mesh.add(link)
        self._members.linked(incarnation, self._loop.time())
        for callback in self.on_link_up:
            callback(link)
        self.heartbeats.greet(link)
        if link.peer.role in CORE_ROLES:
            for linked in self.on_core_linked:
                linked(incarnation)

    def link_down(self, link: Link, reason: str) -> None:
        incarnation = link.peer.incarnation
        log.info("link to %s ended: %s", incarnation, reason)
        self.mesh.remove(link)
        self._members.unlinked(incarnation, self._loop.time())
        has_left = self._members.has_left(incarnation)
        if incarnation not in self.nodes_table and not self._members.is_linked(incarnation):
            self._members.forget(incarnation)
        for callback in self.on_link_down:
            callback(link)
        for lost in self.on_link_lost:
            lost(incarnation)
        other = self.mesh.link_of(incarnation)
        if other is None:
            self.heartbeats.lost(incarnation)
        elif self.mesh.listener.is_leaving or has_left:
            pass  # nothing is sent again: each link still delivers everything before its own Goodbye
        elif not (link.through and other.is_open and not other.through):
            # The peer may have noticed long ago that this link ended, and have resent everything on the other one.
            # The callbacks above undo that, or this node didn't answer it. So both ends start again on a new link.
            self._cut(incarnation, "another link to the same node ended")
        elif link.peer.role in CORE_ROLES:
            for linked in self.on_core_linked:
                linked(incarnation)

    def link_goodbye(self, link: Link) -> None:
        self._members.left(link.peer.incarnation)

    def want_link(self, incarnation: str) -> None:
        """There are messages for this node: link to it."""
        if (info := self.nodes_table.get(incarnation)) is None:
            return
        if self.settings.via_core and not self.is_core and info.role not in CORE_ROLES:
            self.mesh.want(incarnation, ViaCore(incarnation))
        elif info.link_port:
            self.mesh.want(incarnation, (info.host, info.link_port))

    def _log_ends_received(self, incarnation: str, body: bytes) -> None:
        self.staleness.received(self._loop.time(), incarnation, body)

    def _move_received(self, incarnation: str, body: bytes) -> None:
        link = self.mesh.link_of(body.decode(errors="replace"))
        if link is not None and self.core_port.core == incarnation:
            self.core_port.move(link)

    def _who(self) -> str:
        return self.incarnation

    def _writes_through(self) -> str:
        return self.core_port.core

    def _look(self, now: float) -> None:
        self.staleness.look(now)
        self.readiness.look(
            now,
            is_cut_off=self.heartbeats.is_cut_off(),
            is_stale=self.staleness.is_stale,
            hears_redis=self._rlog is None or self._rlog.hears_redis(),
        )
        for callback in self.on_look:
            callback()
        if self.is_core:
            self._balance.look(now)

    def _choose_core(self, unable: Link | None = None) -> Link | None:
        return self._balance.choose(unable)

    def _local(self) -> LocalStatus:
        return self.local_status()

    # --- tables -----------------------------------------------------------------------------------------------------

    def _node_put(self, incarnation: str, info: NodeInfo) -> None:
        for callback in self.on_node_joined:
            callback(incarnation)
        if info.role in CORE_ROLES and incarnation != self.incarnation and self.settings.listen is not None:
            self.want_link(incarnation)

    def _node_deleted(self, incarnation: str) -> None:
        log.info("%s is no member any more", incarnation)
        self.mesh.release(incarnation)
        self._members.forget(incarnation)
        for callback in self.on_node_gone:
            callback(incarnation)
        if incarnation == self.incarnation and self.fencing.is_joined:
            self.on_purged()

    def _keep(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """Keep the task until it ends or this node stops."""
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task
