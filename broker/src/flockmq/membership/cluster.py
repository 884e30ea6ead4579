"""A node's place in the cluster: its links, who else is there, and what they send one another.

    cluster = Cluster(settings, turn, redis)       the callbacks are plain attributes, set before `start`
    rlog = Rlog(cluster.incarnation, redis, port=cluster.core_port, ballot=cluster.ballot, …)
    cluster.watch(rlog)                            tables → members, slots; a core serves its log from here on
    homes = SessionRpcServer(cluster, clients)
    await cluster.start()                          listens, dials
    await rlog.start()
    await cluster.join()                           writes this node's row; a core runs for leader from here on
    …
    await cluster.stop()                           says goodbye: the leader purges this incarnation at once
    await rlog.stop()

Cores keep a full mesh, other nodes link to every core; links between two others are dialled when there is something
to forward, or go through a core (`membership.tunnels`). Every node hears heartbeats on its links; the leader purges and
assigns slots by them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final

import msgspec

from flockmq import bounds, tasks
from flockmq.clock import SYSTEM as SYSTEM_CLOCK
from flockmq.clock import Clock
from flockmq.delivery.node_forwarding import NodeForwarding
from flockmq.delivery.node_sender import NodeSender
from flockmq.delivery.slot_links import SlotLinks
from flockmq.delivery.slot_message import SlotMessage
from flockmq.entropy import SYSTEM, Entropy
from flockmq.membership import event_streams, frames, log_client, replicant_balance, staleness, term_ballot
from flockmq.membership.cluster_time import ClusterTime
from flockmq.membership.cluster_version import ClusterVersion, Rollout
from flockmq.membership.event_streams import EventRelay
from flockmq.membership.frames import Status
from flockmq.membership.handshake import Identity
from flockmq.membership.heartbeats import Heartbeats
from flockmq.membership.latest_links import LatestLinks
from flockmq.membership.leader import Leader
from flockmq.membership.leader_duties import LeaderDuties
from flockmq.membership.link import Link, LinkLost, Refusal
from flockmq.membership.log_client import LogClient
from flockmq.membership.members import Members
from flockmq.membership.mesh import Bind, Mesh, Through
from flockmq.membership.reachability import (
    CORE_ROLES,
    Reachability,
    electorate,
    is_settled,
    may_lead,
    name_of,
    new_incarnation,
)
from flockmq.membership.readiness import Readiness
from flockmq.membership.replicant_balance import ReplicantBalance
from flockmq.membership.staleness import Staleness
from flockmq.membership.term_ballot import TermBallot
from flockmq.membership.views import ClusterSettings, LocalStatus, MemberView, Traffic
from flockmq.redis.link import RedisConfig, RedisLinks
from flockmq.rlog.core import Core
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.row_dict import RowDict
from flockmq.rlog.shards import CLUSTER, NODES, SLOTS, VERSIONS, NodeInfo, Raised
from flockmq.routing.sink import Sink

log: Final = logging.getLogger(__name__)


def _ignore(*_: object) -> None:
    return None


class Cluster:
    """See the module's docstring. It is the LinkOwner of all its links."""

    def __init__(
        self,
        settings: ClusterSettings,
        turn: list[Sink],
        redis: RedisConfig | None = None,
        bind: Bind | None = None,
        entropy: Entropy = SYSTEM,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.settings = settings
        self.incarnation = new_incarnation(settings.name, entropy=entropy)
        self.is_core = settings.role in CORE_ROLES
        self.version = ClusterVersion(settings.speaks)
        self.core_port = LogClient(self._choose_core)
        self.ballot = TermBallot(self._core_links, self._count_cores)
        self.nodes_table = Members(self._node_put, self._node_deleted)
        self.slots: RowDict[int, str] = RowDict(self._slot_put, self._slot_deleted)
        self._versions: RowDict[str, Raised] = RowDict(self._version_put, _ignore)
        self.link_port = 0

        self.local_status: Callable[[], LocalStatus] = LocalStatus
        self.on_forward: Callable[[str, int, bytes], None] = _ignore
        """(incarnation, MQTT version, run of PUBLISH packets) from another node."""
        self.on_drained: Callable[[NodeSender], None] = _ignore
        """A peer that was congested flows again."""
        self.on_returned: Callable[[list[tuple[int, bytes]]], None] = _ignore
        """(MQTT version, chunk) of each batch of shared deliveries that a purged node never accepted."""
        self.on_delivery: Callable[[str, bytes], None] = _ignore
        """(incarnation, body of a DELIVERY frame): for clients of this node whose sessions run there."""
        self.on_node_gone: list[Callable[[str], None]] = []
        """An incarnation was purged."""
        self.on_slot: list[Callable[[int, str], None]] = []
        """A slot has another owner; "" for none."""
        self.on_link_lost: list[Callable[[str], None]] = []
        """A link to this node ended, and with it perhaps what was on its way there."""
        self.on_core_linked: list[Callable[[str], None]] = []
        """There is a link to this core (again), or another one was lost: what was told may not have come."""
        self.on_purged: Callable[[], None] = _ignore
        """This incarnation was purged: the log takes no more from it. `begin_anew` as another."""

        self._me = Identity(self.incarnation, settings.role)
        self._turn = turn
        self._redis = redis
        self._loop = asyncio.get_running_loop()
        self.mesh = Mesh(
            self, self._me, settings.keys, self.version, settings.seeds, settings.certificates, bind, entropy
        )
        self.latest_links = LatestLinks()
        self._members = Reachability(settings.name, self._loop.time())
        self._forwarding = NodeForwarding(
            turn,
            self.mesh,
            self._link_wanted,
            self._forwarded,
            self._drained,
            self._came_back,
            lambda: self.is_fenced,
            lambda: self.may_be_purged,
        )
        self.courier = SlotLinks(turn, self.incarnation, self.mesh, self.slots, self.epoch, self.version.gate(2))
        self.on_slot.append(self.courier.view.noted)
        self.on_node_gone.append(self.courier.node_gone)
        self.time = ClusterTime(clock, self.is_core)
        self._beats = Heartbeats(self.mesh, self._members, self._forwarding, self._local, self.time, self.is_core)
        self.events = EventRelay(self._choose_core, clock.monotonic)
        self.freshness = Staleness(self.mesh, self._is_settled if self.is_core else None, settings.max_stale_s)
        self.fitness = Readiness()
        self._balance = ReplicantBalance(self._who, self.mesh, self._beats)
        self._beats.look = self._look
        self._beats.stale = lambda: self.freshness.is_stale
        self._beats.writes_through = self._writes_through
        self._beats.replicants = self._balance.replicants
        self._note_handlers: dict[str, Callable[[str, bytes], None]] = {
            event_streams.NOTE: self.events.came,
            staleness.NOTE: self._heads_came,
            replicant_balance.NOTE: self._move_came,
        }
        self._request_handlers: dict[str, Callable[[bytes], Awaitable[bytes]]] = {}
        self._rlog: Rlog | None = None
        self._core: Core | None = None
        self._duties: LeaderDuties | None = None
        self._leading: Leader | None = None
        self._running: asyncio.Task[None] | None = None
        self._judged_at = -1.0
        self._was_settled = False
        self._compared_at = -1.0
        self._keeps_up = False
        self._relays = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._joined = False

    # --- life -------------------------------------------------------------------------------------------------------

    def watch(self, rlog: Rlog) -> None:
        """Follow the tables; on a core also serve its log to other nodes. Before `rlog.start`."""
        self._rlog = self._beats.rlog = self.freshness.rlog = rlog
        self._beats.count_cores = self._count_cores
        rlog.on_change(NODES.name, self.nodes_table)
        rlog.on_change(SLOTS.name, self.slots)
        rlog.on_change(VERSIONS.name, self._versions)
        if rlog.core is not None:
            self._core = rlog.core
            rollout = Rollout(self.version.newest, self.settings.version_settle_s)
            self._duties = LeaderDuties(
                rlog, rlog.core, self._members, self.nodes_table, self.slots, self._beats, self.settings.cores,
                rollout, self.mesh.spoken,
            )  # fmt: skip
            self._beats.unreachable = self._duties.unreachable
            self._beats.leads = lambda: self.is_leader
            self._beats.settled = self._is_settled
            self._beats.is_new = self._duties.is_new

    async def start(self) -> None:
        """Raises OSError when the link's port can't be bound."""
        if self.settings.listen is not None:
            self.link_port = await self.mesh.listen(*self.settings.listen)
        self.mesh.start()
        self._keep(tasks.vital(self._beats.run(), "cluster-beats"))

    async def join(self) -> None:
        """Become a member; returns when this node's own tables say so: never, if its release is too old. Raises
        LogError."""
        assert self._rlog is not None
        while self.version.is_passed:  # noqa: ASYNC110 - whoever upgrades it ends it
            await asyncio.sleep(bounds.LINK_LOOK_S)
        me = self.settings
        info = NodeInfo(me.name, me.role, me.host, self.link_port, me.mqtt_port, me.version)
        await self._rlog.write(CLUSTER, [NODES.put(self.incarnation, info)])
        self._joined = True
        if self._redis is not None and self._core is not None and self._duties is not None:
            self.events.redis = self.events.redis or RedisLinks(self._redis)
            self._leading = Leader(self.incarnation, self._redis, self._core, self._duties)
            self._running = self._keep(tasks.vital(self._leading.run(), "cluster-leading"))
        if not self._relays:
            self._relays = True
            self._keep(tasks.begun_anew(self.events.run, "cluster-events"))

    async def begin_anew(self) -> str:
        """This incarnation was purged: be another, of which nobody knows yet, and return when a majority of the cores
        is linked again. Then `rlog.rejoin`, then `join`. What others haven't accepted of its messages is kept."""
        self._joined = False
        former, self.incarnation = self.incarnation, new_incarnation(self.settings.name, self.incarnation)
        log.warning("%s was purged from the cluster; this node goes on as %s", former, self.incarnation)
        if self._leading is not None and self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            await self._leading.close()
            self._leading = None
        self._me = Identity(self.incarnation, self.settings.role)
        self._forwarding.begin_anew()
        self.courier.rename(self.incarnation)
        self.mesh.rename(self._me)
        while not self._hears_majority():  # noqa: ASYNC110 - it is a matter of time, too
            await asyncio.sleep(bounds.LINK_LOOK_S)
        return self.incarnation

    async def until_forwarded(self) -> None:
        """Returns when no home, and no node that stays, is still to accept a message of QoS 1 or 2, or FORWARDED_MAX_S
        later."""
        deadline = self._loop.time() + bounds.FORWARDED_MAX_S
        while self._loop.time() < deadline:
            if not self._is_awaited():
                return
            await asyncio.sleep(bounds.FORWARDED_LOOK_S)

    def _is_awaited(self) -> bool:
        return self.courier.lanes.waiting_messages > 0 or not all(
            self._members.has_left(incarnation) for incarnation in self._forwarding.awaited()
        )

    async def stop(self) -> None:
        """Leave. What was not forwarded is lost; stop serving clients first."""
        self._joined = False
        self.events.leave()
        if self._rlog is not None:
            self._rlog.leave()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.events.flush()
        if self._leading is not None:
            await self._leading.leave()
        await self.mesh.stop()
        self._forwarding.stop()
        self.courier.stop()
        if self._leading is not None:
            await self._leading.close()
        if self.events.redis is not None:
            await self.events.redis.close()

    @property
    def is_leader(self) -> bool:
        return self._leading is not None and self._leading.leads

    @property
    def is_fenced(self) -> bool:
        """This node was purged and isn't back yet, or heard of no majority of the cores for MEMBER_FENCE_S and may have
        been: it acknowledges nothing that needs others."""
        return not self._joined or self._beats.is_fenced(self._loop.time())

    @property
    def is_surely_member(self) -> bool:
        """Neither fenced, nor behind in the log of members and slots for so long: slots that are this node's are nobody
        else's."""
        now = self._loop.time()
        if now != self._compared_at:  # as in `_is_settled`
            assert self._rlog is not None
            self._compared_at = now
            self._keeps_up = self._rlog.lag(CLUSTER)[1] <= bounds.MEMBER_FENCE_S * 1000
        return self._joined and self._keeps_up and not self._beats.is_fenced(now)

    @property
    def may_be_purged(self) -> bool:
        """It was, or was out of touch and hasn't caught up since: others may have what is on its way to this node."""
        return self.incarnation not in self.nodes_table or self.freshness.doubts(self._loop.time())

    def nodes(self) -> list[MemberView]:
        """All members, by name."""
        views = []
        for incarnation, info in self.nodes_table.items():
            heard = self.status_of(incarnation) or Status(-1, -1, -1)
            views.append(
                MemberView(
                    info.name, incarnation, info.role, info.host, info.mqtt_port, info.version,
                    heard.connections, heard.routes, heard.lag_entries, heard.ready, heard.draining, heard.leads,
                )
            )  # fmt: skip
        return sorted(views, key=lambda view: (view.name, view.incarnation))

    def status_of(self, incarnation: str) -> Status | None:
        """What a node said of itself last; None: it isn't linked."""
        return self._beats.status() if incarnation == self.incarnation else self._beats.statuses.get(incarnation)

    def traffic(self) -> dict[str, Traffic]:
        """By name: what goes over the links with each node that is linked now."""
        by_name: dict[str, Traffic] = {}
        for link in self.mesh.links():
            name = link.peer.incarnation.rpartition("@")[0]
            so_far = by_name.get(name, Traffic(0, 0, 0))
            by_name[name] = Traffic(
                so_far.sent_bytes + link.sent_bytes,
                so_far.received_bytes + link.received_bytes,
                so_far.queue_bytes + link.data_bytes,
            )
        return by_name

    @property
    def resend_messages(self) -> int:
        return self._forwarding.resend_messages

    @property
    def dropped_bytes(self) -> int:
        return self._forwarding.dropped_bytes

    def epoch(self) -> int:
        """The place in the log of members and slots that this node is at, as one integer that only grows."""
        assert self._rlog is not None
        applied = self._rlog.applied(CLUSTER)
        return (applied.generation << 48) + applied.sequence

    # --- talking ----------------------------------------------------------------------------------------------------

    def peer(self, incarnation: str) -> NodeSender | None:
        """Where messages for that node are put; None when it isn't a member."""
        if incarnation not in self.nodes_table or incarnation == self.incarnation:
            return None
        return self._forwarding.peer(incarnation)

    def on_note(self, method: str, handler: Callable[[str, bytes], None]) -> None:
        """`handler(incarnation, body)` for each note of that method."""
        self._note_handlers[method] = handler

    def is_linked(self, incarnation: str) -> bool:
        return self.mesh.link_of(incarnation) is not None

    def on_request(self, method: str, handler: Callable[[bytes], Awaitable[bytes]]) -> None:
        """`handler(body)` answers each request of that method."""
        self._request_handlers[method] = handler

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

    def deliver(self, incarnation: str, parts: list[bytes], size_bytes: int) -> bool:
        """Packets for clients of another node, whose sessions run here. False: there is no link, or no room on it."""
        link = self.mesh.link_of(incarnation)
        if link is None or link.data_bytes > bounds.DELIVERIES_MAX_BYTES:
            return False
        link.send_data([frames.delivery_header(size_bytes), *parts], size_bytes)
        return True

    def hand_events(self, kind: str, batch: Sequence[event_streams.Event]) -> None:
        """Events for the nightly report (kinds: events.KINDS); best effort."""
        self.events.buffer.add(kind, batch)

    # --- LinkOwner --------------------------------------------------------------------------------------------------

    def link_up(self, link: Link) -> None:
        incarnation = link.peer.incarnation
        self.mesh.add(link)
        self._members.linked(incarnation)
        link.control(frames.Resume(self._forwarding.last_accepted(incarnation)))
        self._beats.greet(link)
        self.courier.link_up(link)
        if link.peer.role in CORE_ROLES:
            for callback in self.on_core_linked:
                callback(incarnation)

    def link_down(self, link: Link, reason: str) -> None:
        incarnation = link.peer.incarnation
        log.info("link to %s ended: %s", incarnation, reason)
        self.mesh.remove(link)
        self.latest_links.link_down(link)
        is_member = incarnation in self.nodes_table
        self._members.unlinked(incarnation, self._loop.time())
        has_left = self._members.has_left(incarnation)
        if not is_member and not self._members.is_linked(incarnation):
            self._members.forget(incarnation)
        self._forwarding.link_down(link)
        self.courier.link_down(link, is_member)
        for lost in self.on_link_lost:
            lost(incarnation)
        other = self.mesh.link_of(incarnation)
        if other is None:
            self._beats.lost(incarnation)
        elif self.mesh.is_leaving or has_left:
            pass  # nothing is said again: what was said comes until each link's own goodbye
        elif not (link.through and other.is_open and not other.through):
            # The peer may have seen its end long before, and have said all again on the other one, which this end of it
            # has undone or didn't answer: both begin again.
            self._cut(incarnation, "another link to the same node ended")
        elif link.peer.role in CORE_ROLES:
            for callback in self.on_core_linked:
                callback(incarnation)

    def link_heartbeat(self, link: Link, status: Status) -> None:
        self._beats.heard(link, status)

    def link_note(self, link: Link, method: str, body: bytes) -> None:
        handler = self._note_handlers.get(method)
        if handler is None:
            log.warning("%s sent a note %r that this version doesn't know", link.peer.incarnation, method)
            return
        try:
            handler(link.peer.incarnation, body)
        except msgspec.MsgspecError as error:
            link.close(f"its note {method} isn't well-formed: {error}")

    async def link_request(self, link: Link, method: str, body: bytes) -> bytes:
        if method in (log_client.REGISTER, log_client.APPEND) and self._core is not None:
            self._beats.appends += 1
            assert self._rlog is not None
            return await log_client.serve(
                self._core, method, body, link.peer, self._rlog.note_head, self.version.gate(2)
            )
        if method == term_ballot.ASK and self._core is not None and link.peer.role in CORE_ROLES:
            return await term_ballot.serve(self._core, body)
        if (handler := self._request_handlers.get(method)) is not None:
            return await handler(body)
        raise Refusal("unavailable", f"{self.incarnation} doesn't serve {method}")

    def link_stream(self, link: Link, method: str, body: bytes) -> AsyncGenerator[bytes, None]:
        if method == log_client.BOOTSTRAP and self._core is not None:
            return log_client.serve_bootstrap(self._core, body)
        return _refused_stream(f"{self.incarnation} doesn't serve {method}")

    def link_forward(self, link: Link, version: int, chunk: bytes) -> None:
        if not self.latest_links.is_late(frames.FORWARD, link, len(chunk)):
            self._forwarding.take_run(link, version, chunk)

    def link_numbered(self, link: Link, number: int, version: int, chunk: bytes) -> None:
        if not self.latest_links.is_late(frames.FORWARD, link, len(chunk)):
            self._forwarding.take_batch(link, number, version, chunk)

    def link_delivery(self, link: Link, body: bytes) -> None:
        if self.latest_links.is_late(frames.DELIVERY, link, len(body)):
            return
        link.used_at = link.heard_at
        try:
            self.on_delivery(link.peer.incarnation, body)
        except ValueError as error:
            link.close(str(error))

    def link_courier(self, link: Link, number: int, epoch: int, letters: list[SlotMessage], size_bytes: int) -> None:
        if not self.latest_links.is_late(frames.COURIER, link, size_bytes):
            self.courier.came(link, number, epoch, letters, size_bytes)

    def link_taken(self, link: Link, number: int, view: int, stuck: dict[int, int]) -> None:
        self.courier.taken(link, number, view, stuck)

    def link_resume(self, link: Link, accepted: int) -> None:
        self._forwarding.resume(link, accepted)

    def link_accepted(self, link: Link, number: int) -> None:
        self._forwarding.accepted(link, number)

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
            is_cut_off=self._beats.is_cut_off(),
            is_stale=self.freshness.is_stale,
            hears_redis=self._rlog is None or self._rlog.hears_redis(),
        )
        self._forwarding.look()
        if self.is_core:
            self._balance.look(now)

    def _forwarded(self, incarnation: str, version: int, chunk: bytes) -> None:
        self.on_forward(incarnation, version, chunk)

    def _drained(self, peer: NodeSender) -> None:
        self.on_drained(peer)

    def _came_back(self, batches: list[tuple[int, bytes]]) -> None:
        self.on_returned(batches)

    def link_tunnel(self, link: Link, message: frames.TunnelOpen | frames.TunnelCredit | frames.TunnelClose) -> None:
        self.mesh.tunnels.take(link, message)

    def link_tunnelled(self, link: Link, tunnel_id: int, chunk: bytes) -> None:
        self.mesh.tunnels.came(link, tunnel_id, chunk)

    def link_goodbye(self, link: Link) -> None:
        self._members.left(link.peer.incarnation)

    def _link_wanted(self, incarnation: str) -> None:
        if (info := self.nodes_table.get(incarnation)) is None:
            return
        if self.settings.via_core and not self.is_core and info.role not in CORE_ROLES:
            self.mesh.want(incarnation, Through(incarnation))
        elif info.link_port:
            self.mesh.want(incarnation, (info.host, info.link_port))

    def _choose_core(self, unable: Link | None = None) -> Link | None:
        return self._balance.choose(unable)

    def _hears_majority(self) -> bool:
        """Members or not: after a purge it may be that no core is one."""
        now = self._loop.time()
        if not self.is_core:
            return not self._beats.is_fenced(now)
        cores = [link.peer.incarnation for link in self._core_links()]
        heard = {name_of(core) for core in cores if self._beats.is_heard(core, now)} - {self.settings.name}
        return may_lead(1 + len(heard), self._count_cores())

    def _is_settled(self, now: float) -> bool:
        if self._duties is None:
            return True
        if now != self._judged_at:  # it is asked for each CONNECT, and the loop's time stands still in a turn
            holds_lease = self._leading is not None and self._leading.holds_lease
            self._judged_at = now
            self._was_settled = is_settled(*self._duties.voices(now, bounds.MEMBER_FENCE_S), holds_lease)
        return self._was_settled

    def _core_links(self) -> list[Link]:
        return [link for link in self.mesh.links() if link.peer.role in CORE_ROLES]

    def _count_cores(self) -> int:
        """As configured; or else all that are members, or linked though they aren't yet."""
        cores = {*self.nodes_table.cores, *self.mesh.linked_cores()}
        if self.is_core:
            cores.add(self.incarnation)
        return electorate(self.settings.cores, cores)

    def _local(self) -> LocalStatus:
        return self.local_status()

    # --- tables -----------------------------------------------------------------------------------------------------

    def _node_put(self, incarnation: str, info: NodeInfo) -> None:
        self._forwarding.joined(incarnation)
        if info.role in CORE_ROLES and incarnation != self.incarnation and self.settings.listen is not None:
            self._link_wanted(incarnation)

    def _node_deleted(self, incarnation: str) -> None:
        log.info("%s is no member any more", incarnation)
        self.mesh.release(incarnation)
        self._members.forget(incarnation)
        self._forwarding.purge(incarnation)
        for callback in self.on_node_gone:
            callback(incarnation)
        if incarnation == self.incarnation and self._joined:
            self.on_purged()

    def _slot_put(self, slot: int, owner: str) -> None:
        for callback in self.on_slot:
            callback(slot, owner)

    def _version_put(self, _: str, raised: Raised) -> None:
        if raised.version > self.version.newest:
            log.error(
                "the cluster is at version %d, and this node's release speaks %d at most: upgrade this node",
                raised.version,
                self.version.newest,
            )
        elif raised.version > self.version.current:
            log.info("the cluster is at version %d: all nodes speak it", raised.version)
        self.version.raised(raised.version)
        for link in self.mesh.links():
            if link.speaks < raised.version:
                link.close(f"it speaks version {link.speaks} at most, and the cluster is at {raised.version}")

    def _slot_deleted(self, slot: int) -> None:
        self._slot_put(slot, "")

    def _keep(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """Until it is over, or this node stops."""
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task


async def _refused_stream(message: str) -> AsyncGenerator[bytes, None]:
    raise Refusal("unavailable", message)
    yield b""
