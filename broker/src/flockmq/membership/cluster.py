"""A node's place in the cluster: its links, who else is there, and what they tell one another.

    cluster = Cluster(settings, redis)             the callbacks are plain attributes, set before `start`
    delivery = Delivery(router.turn, cluster)      takes the links' frames of messages
    rlog = Rlog(cluster.incarnation, redis, port=cluster.core_port, ballot=cluster.ballot, …)
    cluster.watch(rlog)                            tables → members, slots; a core serves its log from here on
    homes = SessionRpc(cluster, delivery.packets, clients, remote_sessions)
    await cluster.start()                          listens, dials
    await rlog.start()
    await cluster.join()                           writes this node's row; a core runs for leader from here on
    …
    await cluster.stop()                           says goodbye: the leader purges this incarnation at once
    delivery.stop()
    await rlog.stop()

Cores keep a full mesh, other nodes link to every core; links between two others are dialled when there is something
to forward, or go through a core (`membership.tunnels`). Every node hears heartbeats on its links; the leader purges and
assigns slots by them. Whatever comes on a link goes to the handler of its kind (`handlers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from flockmq import bounds, tasks
from flockmq.clock import SYSTEM as SYSTEM_CLOCK
from flockmq.clock import Clock
from flockmq.entropy import SYSTEM, Entropy
from flockmq.membership import event_export, frames, replicant_balance, staleness
from flockmq.membership.cluster_time import ClusterTime
from flockmq.membership.cluster_version import ClusterVersion, Rollout
from flockmq.membership.cluster_version_row import VersionTable
from flockmq.membership.event_export import EventRelay
from flockmq.membership.fencing import Fencing
from flockmq.membership.frames import Status
from flockmq.membership.generation_votes import TermBallot
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
from flockmq.membership.mesh import Mesh, Through
from flockmq.membership.reachability import CORE_ROLES, Reachability, new_incarnation
from flockmq.membership.readiness import Readiness
from flockmq.membership.replicant_balance import ReplicantBalance
from flockmq.membership.slot_table import SlotTable
from flockmq.membership.staleness import Staleness
from flockmq.membership.views import ClusterSettings, LocalStatus, MemberView, member_views
from flockmq.redis.link import RedisConfig, RedisLinks
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import CLUSTER, NODES, SLOTS, VERSIONS, NodeInfo

log: Final = logging.getLogger(__name__)


def _ignore(*_: object) -> None:
    return None


class Cluster:
    """See the module's docstring. It is the LinkOwner of all its links."""

    def __init__(
        self,
        settings: ClusterSettings,
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
        """Called ten times a second, when it is known whether this node's tables are new enough."""
        self.on_renamed: list[Callable[[str], None]] = []
        """This node goes on as another incarnation; its links are closed behind that."""
        self.on_node_joined: list[Callable[[str], None]] = []
        self.on_node_gone: list[Callable[[str], None]] = []
        """An incarnation was purged."""
        self.on_link_lost: list[Callable[[str], None]] = []
        """A link to this node ended, and with it perhaps what was on its way there."""
        self.on_core_linked: list[Callable[[str], None]] = []
        """There is a link to this core (again), or another one was lost: what was told may not have come."""
        self.on_purged: Callable[[], None] = _ignore
        """This incarnation was purged: the log takes no more from it. `begin_anew` as another."""

        self._me = Identity(self.incarnation, settings.role)
        self._redis = redis
        self._loop = asyncio.get_running_loop()
        self.mesh = Mesh(
            self, self._me, settings.keys, self.version, settings.seeds, settings.certificates, bind, entropy
        )
        self._members = Reachability(settings.name, self._loop.time())
        self.time = ClusterTime(clock, self.is_core)
        self.beats = Heartbeats(self.mesh, self._members, self._local, self.time, self.is_core)
        self.fencing = Fencing(self._who, self.is_core, settings.cores, self.nodes_table, self.mesh, self.beats)
        self.ballot = TermBallot(self.mesh.core_links, self.fencing.count_cores)
        self.events = EventRelay(self._choose_core, clock.monotonic)
        is_settled = self.fencing.is_settled if self.is_core else None
        self.freshness = Staleness(self.mesh, is_settled, settings.max_stale_s)
        self.fitness = Readiness()
        self._balance = ReplicantBalance(self._who, self.mesh, self.beats)
        self._rlog: Rlog | None = None
        self._duties: LeaderDuties | None = None
        self._running: asyncio.Task[None] | None = None
        self._relays = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._introduce()

    def _introduce(self) -> None:
        """The parts to one another, and to the links."""
        self.fencing.doubts = self.freshness.doubts
        self.beats.look = self._look
        self.beats.stale = lambda: self.freshness.is_stale
        self.beats.writes_through = self._writes_through
        self.beats.replicants = self._balance.replicants
        self.handlers.controls[frames.Heartbeat] = self.beats.heard
        self.handlers.notes[event_export.NOTE] = self.events.came
        self.handlers.notes[staleness.NOTE] = self._heads_came
        self.handlers.notes[replicant_balance.NOTE] = self._move_came

    # --- life -------------------------------------------------------------------------------------------------------

    def watch(self, rlog: Rlog) -> None:
        """Follow the tables; on a core also serve its log to other nodes. Before `rlog.start`."""
        self._rlog = self.beats.rlog = self.freshness.rlog = self.fencing.rlog = rlog
        self.beats.count_cores = self.fencing.count_cores
        rlog.on_change(NODES.name, self.nodes_table)
        rlog.on_change(SLOTS.name, self.slots)
        rlog.on_entry(CLUSTER, self.slots.entry_applied)
        rlog.on_change(VERSIONS.name, VersionTable(self.version, self.mesh).rows)
        if rlog.core is not None:
            LogServer(rlog.core, rlog, self.beats, self.version.gate(2)).listen(self.handlers)
            rollout = Rollout(self.version.newest, self.settings.version_settle_s)
            duties = LeaderDuties(
                rlog, rlog.core, self._members, self.nodes_table, self.slots, self.beats, self.settings.cores,
                rollout, self.mesh.spoken,
            )  # fmt: skip
            self._duties = self.fencing.duties = duties
            self.beats.unreachable = duties.unreachable
            self.beats.leads = lambda: self.is_leader
            self.beats.settled = self.fencing.is_settled
            self.beats.is_new = duties.is_new

    async def start(self) -> None:
        """Raises OSError when the link's port can't be bound."""
        if self.settings.listen is not None:
            self.link_port = await self.mesh.listener.listen(*self.settings.listen)
        self.mesh.start()
        self._keep(tasks.vital(self.beats.run(), "cluster-beats"))

    async def join(self) -> None:
        """Become a member; returns when this node's own tables say so: never, if its release is too old. Raises
        StorageError."""
        assert self._rlog is not None
        while self.version.is_passed:  # noqa: ASYNC110 - whoever upgrades it ends it
            await asyncio.sleep(bounds.LINK_LOOK_S)
        me = self.settings
        info = NodeInfo(me.name, me.role, me.host, self.link_port, me.mqtt_port, me.version)
        await self._rlog.write(CLUSTER, [NODES.put(self.incarnation, info)])
        self.fencing.is_joined = True
        if self._redis is not None and self._rlog.core is not None and self._duties is not None:
            self.events.redis = self.events.redis or RedisLinks(self._redis)
            self.fencing.leading = Leader(self.incarnation, self._redis, self._rlog.core, self._duties)
            self._running = self._keep(tasks.vital(self.fencing.leading.run(), "cluster-leading"))
        if not self._relays:
            self._relays = True
            self._keep(tasks.begun_anew(self.events.run, "cluster-events"))

    async def begin_anew(self) -> str:
        """This incarnation was purged: be another, of which nobody knows yet, and return when a majority of the cores
        is linked again. Then `rlog.rejoin`, then `join`. What others haven't accepted of its messages is kept."""
        self.fencing.is_joined = False
        former, self.incarnation = self.incarnation, new_incarnation(self.settings.name, self.incarnation)
        log.warning("%s was purged from the cluster; this node goes on as %s", former, self.incarnation)
        if self.fencing.leading is not None and self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
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
        """Leave; stop serving clients first."""
        self.fencing.is_joined = False
        self.events.leave()
        if self._rlog is not None:
            self._rlog.leave()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
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

    @property
    def is_surely_member(self) -> bool:
        return self.fencing.is_surely_member

    def nodes(self) -> list[MemberView]:
        """All members, by name."""
        return member_views(self.nodes_table, self.status_of)

    def has_left(self, incarnation: str) -> bool:
        """It said that it won't come back."""
        return self._members.has_left(incarnation)

    def status_of(self, incarnation: str) -> Status | None:
        """What a node said of itself last; None: it isn't linked."""
        return self.beats.status() if incarnation == self.incarnation else self.beats.statuses.get(incarnation)

    # --- talking ----------------------------------------------------------------------------------------------------

    def on_note(self, method: str, handler: Callable[[str, bytes], None]) -> None:
        """`handler(incarnation, body)` for each note of that method."""
        self.handlers.notes[method] = handler

    def is_linked(self, incarnation: str) -> bool:
        return self.mesh.link_of(incarnation) is not None

    def on_request(self, method: str, handler: Callable[[bytes], Awaitable[bytes]]) -> None:
        """`handler(body)` answers each request of that method."""
        self.handlers.requests[method] = lambda _, body: handler(body)

    async def ask(self, incarnation: str, method: str, body: bytes) -> bytes:
        """A node's answer to a request. Raises LinkLost, also without a link; Refusal."""
        link = self.mesh.link_of(incarnation)
        if link is None:
            raise LinkLost(f"there is no link to {incarnation or 'a core'}")
        return await link.request(method, body)

    def tell(self, incarnation: str, method: str, body: bytes) -> bool:
        """A note to a node there is a link to, as between any node and any core. False: there is none."""
        link = self.mesh.link_of(incarnation)
        if link is None:
            return False
        link.note(method, body)
        return True

    def is_choked(self, incarnation: str) -> bool:
        """So many notes wait on the link to it that no more should be told: at LINK_CONTROL_MAX_BYTES it is closed."""
        link = self.mesh.link_of(incarnation)
        return link is not None and link.control_bytes > bounds.LINK_CONTROL_CHOKED_BYTES

    def cut(self, incarnation: str) -> None:
        """Something that was to be told won't be: both ends begin again with another link."""
        self._cut(incarnation, "more waits for it than may")

    def _cut(self, incarnation: str, reason: str) -> None:
        for link in list(self.mesh.links_of(incarnation)):
            link.close(reason)

    def hand_events(self, kind: str, batch: Sequence[event_export.Event]) -> None:
        """Events for the nightly report (kinds: events.KINDS); best effort."""
        self.events.buffer.add(kind, batch)

    # --- LinkOwner --------------------------------------------------------------------------------------------------

    def link_up(self, link: Link) -> None:
        incarnation = link.peer.incarnation
        self.mesh.add(link)
        self._members.linked(incarnation)
        for callback in self.on_link_up:
            callback(link)
        self.beats.greet(link)
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
            self.beats.lost(incarnation)
        elif self.mesh.is_leaving or has_left:
            pass  # nothing is said again: what was said comes until each link's own goodbye
        elif not (link.through and other.is_open and not other.through):
            # The peer may have seen its end long before, and have said all again on the other one, which this end of it
            # has undone or didn't answer: both begin again.
            self._cut(incarnation, "another link to the same node ended")
        elif link.peer.role in CORE_ROLES:
            for linked in self.on_core_linked:
                linked(incarnation)

    def link_goodbye(self, link: Link) -> None:
        self._members.left(link.peer.incarnation)

    def want_link(self, incarnation: str) -> None:
        """There are messages for it."""
        if (info := self.nodes_table.get(incarnation)) is None:
            return
        if self.settings.via_core and not self.is_core and info.role not in CORE_ROLES:
            self.mesh.want(incarnation, Through(incarnation))
        elif info.link_port:
            self.mesh.want(incarnation, (info.host, info.link_port))

    def _heads_came(self, incarnation: str, body: bytes) -> None:
        self.freshness.heard(self._loop.time(), incarnation, body)

    def _move_came(self, incarnation: str, body: bytes) -> None:
        link = self.mesh.link_of(body.decode(errors="replace"))
        if link is not None and self.core_port.core == incarnation:
            self.core_port.move(link)

    def _who(self) -> str:
        return self.incarnation

    def _writes_through(self) -> str:
        return self.core_port.core

    def _look(self, now: float) -> None:
        self.freshness.look(now)
        self.fitness.look(
            now,
            is_cut_off=self.beats.is_cut_off(),
            is_stale=self.freshness.is_stale,
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
        """Until it is over, or this node stops."""
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task
