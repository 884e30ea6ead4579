"""Evacuation: a node that stops, or that an operator empties, sends its clients to other nodes at a limited rate.

    SIGTERM ─▶ run: refuse CONNECTs with 0x9C, disconnect clients at the rate of eviction_pace.py ─▶ end: the rest

Invariants: while another node accepts clients, the owner of an evicted client's id holds back its will for WILL_HELD_S.
If no other node accepts clients, they are disconnected only at the end, and their wills are published. A client that is
being attached isn't refused: its owner may admit it later, and would then disconnect it where it is by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

from flockmq import tasks
from flockmq.bounds import EVICTION_LOOK_S, EVICTION_TICK_S, OTHERS_UNKNOWN_MAX_S, WILL_HELD_S
from flockmq.management.view import ClusterState, Evacuated, EvacuationView, Unavailable
from flockmq.membership.cluster import Cluster
from flockmq.mqtt.reason import Reason
from flockmq.node.access_control import AccessControl
from flockmq.node.connections import Connections
from flockmq.node.eviction_pace import Draining, EvictionPace, Others, others
from flockmq.protocol.channel import Channel
from flockmq.transport.reactor import Reactor

log: Final = logging.getLogger(__name__)

_NO_OTHERS: Final = Others(False, 1.0)


class Evacuation(EvacuationView):
    """One per node. Setting `hurry` disconnects all clients at once. `cluster_state` returns the state of the
    cluster."""

    def __init__(
        self,
        clients: Connections,
        access: AccessControl,
        reactor: Reactor,
        cluster: Cluster,
        cluster_state: Callable[[], Awaitable[ClusterState]],
        settings: Draining,
    ) -> None:
        self.hurry = asyncio.Event()
        self._clients = clients
        self._access = access
        self._reactor = reactor
        self._cluster = cluster
        self._cluster_state = cluster_state
        self._settings = settings
        self._pace = EvictionPace(settings, asyncio.get_running_loop().time())
        self._others = _NO_OTHERS
        self._is_known = False
        """Whether the last request for the cluster's state was answered."""
        self._is_ending = False
        self._wanted: asyncio.Task[None] | None = None
        """The evacuation that an operator started; the node keeps running."""

    def configure(self, settings: Draining) -> None:
        """Other settings, for the next evacuation."""
        self._settings = settings

    # A node that stops.

    async def run(self) -> None:
        """Evict clients until none is left, no other node accepts them, or the drain timeout is over."""
        self.stop()
        self._is_ending = True
        if not self._clients.by_id or not self._settings.timeout_s:
            return
        now = asyncio.get_running_loop().time
        self._pace = EvictionPace(self._settings, now())
        async with self._looking(for_good=False) as looking:
            while not (self._others.accept or looking.done() or self.hurry.is_set()):
                await self._moment()
            self._send_elsewhere()
            while self._goes_on() and not self._pace.is_over(now()):
                self._evict()
                await self._moment()
        self._send_elsewhere()

    def end(self) -> None:
        """Disconnect all remaining clients at once."""
        self._is_ending, to_others = True, self._access.sends_away
        self._reactor.router.counters.evictions += len(self._clients.by_id) if to_others else 0
        for channel in list(self._reactor.channels()):
            if channel is None:
                continue
            if channel in self._clients.attaching:
                channel.close(Reason.SERVER_SHUTTING_DOWN)
            else:
                channel.send_away(to_others)
        self._reactor.end_turn()
        self.stop()

    # A node that keeps running.

    @property
    def is_wanted(self) -> bool:
        return self._wanted is not None

    @property
    def is_emptied(self) -> bool:
        """Whether all clients go, or are to go."""
        return self.is_wanted or self._is_ending

    @property
    def clients(self) -> int:
        return len(self._clients.by_id)

    def status(self) -> Evacuated:
        counters, share = self._reactor.router.counters, self._others.share
        rate = self._pace.rate * share if self._access.sends_away else 0.0
        return Evacuated(is_on=self.is_wanted, clients=self.clients, evicted=counters.evictions, rate=rate)

    def start(self) -> None:
        if self._is_ending:
            raise Unavailable("this node ends, and sends its clients away")
        if self._wanted is None:
            log.info("an operator has this node's clients sent to other nodes")
            self._wanted = tasks.restartable(self._go_on, "node-evacuation")

    def stop(self) -> None:
        if self._wanted is not None:
            self._wanted.cancel()
            self._wanted = None
            self._others = _NO_OTHERS
            self._send_elsewhere()

    async def _go_on(self) -> None:
        """Evict clients whenever other nodes accept them. Runs until cancelled."""
        self._pace = EvictionPace(self._settings._replace(timeout_s=math.inf), asyncio.get_running_loop().time())
        async with self._looking(for_good=True):
            while True:
                self._send_elsewhere()
                self._evict()
                await asyncio.sleep(EVICTION_TICK_S)

    # Other nodes.

    @contextlib.asynccontextmanager
    async def _looking(self, *, for_good: bool) -> AsyncIterator[asyncio.Task[None]]:
        self._others, self._is_known = _NO_OTHERS, False  # what an earlier evacuation heard last may not hold any more
        looking = asyncio.create_task(self._look(for_good))
        try:
            yield looking
        finally:
            looking.cancel()
            await asyncio.wait([looking])

    async def _look(self, for_good: bool) -> None:
        """Watch the other nodes. Unless `for_good`, end when none accepts clients, or when their state is unknown for
        OTHERS_UNKNOWN_MAX_S."""
        now = asyncio.get_running_loop().time
        until_s = now() + OTHERS_UNKNOWN_MAX_S
        while True:
            answer = await self._ask()
            self._is_known = answer is not None
            if answer is not None:
                self._others, until_s = answer, now() + OTHERS_UNKNOWN_MAX_S
                self._pace.heard(answer.connect_wait_s)
            if now() >= until_s or (answer is not None and not answer.accept):
                self._others = _NO_OTHERS
                if not for_good:
                    return
            await asyncio.sleep(EVICTION_LOOK_S)

    async def _ask(self) -> Others | None:
        """None if this node reaches no core, so that it knows only itself, or can't read the answer."""
        try:
            me, state = self._cluster, await self._cluster_state()
        except Exception:  # this must go on; until there is an answer nobody is evicted
            log.exception("the state of the other nodes can't be had")
            return None
        is_known = me.is_core or state.told_by != me.settings.name
        return others(state.nodes, me.incarnation) if is_known else None

    def _goes_on(self) -> bool:
        has_clients = bool(self._clients.by_id or self._clients.attaching)
        return self._others.accept and has_clients and not self.hurry.is_set()

    def _send_elsewhere(self) -> None:
        """Begin, or stop, to refuse clients and to have their wills held back, if that has changed."""
        accept = self._others.accept
        self._clients.hold_s = self._hold_s() if accept else 0.0
        if accept == self._access.sends_away:
            return
        self._access.sends_away = accept
        if accept:
            log.info("%d clients are sent to other nodes", len(self._clients.by_id))
            self._refuse_who_waits()

    def _refuse_who_waits(self) -> None:
        """Send away the clients that aren't authenticated yet."""
        for channel in list(self._reactor.channels()):
            if channel is None or channel.session is None or channel.admitted_once:
                continue
            if channel not in self._clients.attaching:
                channel.send_away(True)
        self._reactor.end_turn()

    # Clients.

    def _evict(self) -> None:
        if not self._others.accept or not self._is_known:
            return
        number = self._pace.due(asyncio.get_running_loop().time(), self.clients, self._others.share)
        self.evict(list(islice(self._clients.by_id.values(), number)))  # those that have been here longest

    def evict(self, clients: Sequence[Channel]) -> None:
        """Send these clients to other nodes."""
        if not clients:
            return
        self._clients.hold_s = self._hold_s()
        for channel in clients:
            channel.send_away(True)
        self._reactor.router.counters.evictions += len(clients)
        self._reactor.end_turn()

    def _hold_s(self) -> float:
        return WILL_HELD_S if self._cluster.version.at_least(2) else 0.0

    async def _moment(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVICTION_TICK_S):
                await self.hurry.wait()
