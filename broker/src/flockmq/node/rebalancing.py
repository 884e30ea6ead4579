"""Rebalancing: a node that has more load than its share sends the excess to other nodes, at a limited rate.

    look at the cluster ─▶ client_balance.py: too much? ─▶ node_load.py: which clients? ─▶ disconnect them with 0x9C

A node does so by itself if its configuration says so, and when an operator asks for it. Meanwhile the automatic one
waits. Nothing of this outlives the process.

The node still accepts clients: the load balancer chooses where a client reconnects. Of clients that are alike the
oldest connections are disconnected first, and none of those that came since nodes began to send clients away. The
owners hold back the wills of these clients for WILL_HELD_S, as in an evacuation.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple

from flockmq.bounds import EVICTION_TICK_S, REBALANCE_COMPARED_MAX, REBALANCE_LOOK_S
from flockmq.management.rebalance_rows import AskedProgress, AskedRebalance
from flockmq.management.view import ClusterState
from flockmq.membership.cluster import Cluster
from flockmq.node.client_balance import NONE, AskedBalance, Balancing, ClientBalance
from flockmq.node.client_traffic import ClientTraffic
from flockmq.node.evacuation import Evacuation
from flockmq.node.eviction_pace import Draining, EvictionPace, others
from flockmq.node.node_load import Weights, chosen
from flockmq.protocol.channel import Channel
from flockmq.telemetry.sample import Sample

log: Final = logging.getLogger(__name__)


class Rebalances(NamedTuple):
    """The configuration of rebalancing."""

    thresholds: Balancing = Balancing()
    weights: Weights = Weights()
    rate: float = 500.0
    """Clients per second, for all nodes together."""
    is_automatic: bool = False
    """Whether a node begins by itself."""


class Rebalancing:
    """One per node. `tell` returns the state of the cluster."""

    def __init__(
        self,
        evacuation: Evacuation,
        traffic: ClientTraffic,
        cluster: Cluster,
        tell: Callable[[], Awaitable[ClusterState]],
        settings: Rebalances,
    ) -> None:
        self._evacuation = evacuation
        self._traffic = traffic
        self._cluster = cluster
        self._tell = tell
        self._settings = settings
        self._automatic = _automatic(settings)
        self._pace = self._paced(settings.rate)
        """That of the one which runs."""
        self._asked: AskedBalance | None = None
        """The last one that an operator asked for."""
        self._is_asked = asyncio.Event()
        self._excess = NONE
        """What was to go, by the last comparison."""
        self._leaving: deque[Channel] = deque()
        """Whom it chose then, and who hasn't gone yet. At most REBALANCE_COMPARED_MAX, unless all clients are alike."""

    def samples(self) -> Iterator[Sample]:
        yield Sample("flockmq_rebalancing", self.is_shedding)

    @property
    def is_shedding(self) -> bool:
        """Whether this node sends clients beyond its share to other nodes."""
        return (balance := self._current()) is not None and balance.is_shedding

    @property
    def has_too_much(self) -> bool:
        """Whether it sends clients away, or will when it has waited."""
        return (balance := self._current()) is not None and balance.has_too_much

    def left(self) -> tuple[int, float]:
        """How many clients are still to go now, and how many per second this node may send away; zeros while it doesn't
        rebalance."""
        left = len(self._leaving)
        return left, self._pace.rate * self._excess.share if left else 0.0

    def configure(self, settings: Rebalances) -> None:
        """Other settings. The automatic one begins anew; one that an operator asked for goes on as it began."""
        self._settings = settings
        self._automatic = _automatic(settings)
        if self._asked is None or self._asked.is_over:
            self._begin_anew(settings.rate)
        self._is_asked.set()

    # One that an operator asks for.

    def asked(self) -> AskedProgress | None:
        """How far the last one is."""
        return None if self._asked is None else self._asked.progress()

    def start(self, asked: AskedRebalance) -> None:
        """Begin one, in place of one that runs. A node that sends all its clients away has no share."""
        if self._evacuation.is_emptied:
            return
        now = asyncio.get_running_loop().time()
        thresholds, weights = self._settings.thresholds.asked(asked), self._settings.weights.asked(asked)
        self._asked = AskedBalance(asked, thresholds, now, weights)
        self._begin_anew(asked.rate or self._settings.rate)
        self._is_asked.set()
        log.info("an operator asks for a rebalance%s", f": {asked.name}" if asked.name else "")

    def stop(self, name: str | None) -> None:
        """End that of this name, if it runs; None: whichever runs."""
        asked = self._asked
        if asked is not None and not asked.is_over and name in (None, asked.progress().name):
            asked.end("stopped")
            self._ended(asked)

    def _ended(self, asked: AskedBalance) -> None:
        log.info("the rebalance that was asked for is over here: %s", asked.progress().state.replace("_", " "))
        self._begin_anew(self._settings.rate)

    def _begin_anew(self, rate: float) -> None:
        """Forget what was to go; the automatic rebalancing waits from now on."""
        self._stay()
        self._pace = self._paced(rate)
        if self._automatic is not None:
            self._automatic.pause(asyncio.get_running_loop().time())

    def _current(self) -> ClientBalance | AskedBalance | None:
        return self._automatic if self._asked is None or self._asked.is_over else self._asked

    # What both do.

    async def run(self) -> None:
        """Rebalance until cancelled."""
        while True:
            if (balance := self._current()) is None:
                self._is_asked.clear()
                await self._is_asked.wait()
            else:
                await self._round(balance)

    async def _round(self, balance: ClientBalance | AskedBalance) -> None:
        """Compare this node with the others, then disconnect clients until the next comparison."""
        state = await self._tell()
        if balance is self._current():
            self._pace.heard(others(state.nodes, self._cluster.incarnation).connect_wait_s)
            self._look(balance, state)
        for _ in range(round(REBALANCE_LOOK_S / EVICTION_TICK_S)):
            await asyncio.sleep(EVICTION_TICK_S)
            if balance is not self._current():
                return
            if self._leaving and not self._evacuation.is_emptied:
                self._send_away(balance)

    def _send_away(self, balance: ClientBalance | AskedBalance) -> None:
        """Those whose turn it is now."""
        number = self._pace.due(asyncio.get_running_loop().time(), len(self._leaving), self._excess.share)
        due = [self._leaving.popleft() for _ in range(number)]
        going = [channel for channel in due if self._traffic.is_here(channel)]
        load = sum(self._excess.scale.load(self._traffic.figures_of(channel)) for channel in going)
        for channel in going:
            self._traffic.gone(channel)
        self._evacuation.evict(going)
        balance.sent(len(going), load)

    def _look(self, balance: ClientBalance | AskedBalance, state: ClusterState) -> None:
        now, was_shedding = asyncio.get_running_loop().time(), balance.is_shedding
        self._stay()
        if self._evacuation.is_emptied:
            balance.pause(now)
        else:
            own = self._traffic.figures()
            self._excess = balance.look(now, state.nodes, self._cluster.incarnation, own)
            if self._excess.load:
                came_back = self._choose()
                balance.found(now, len(self._leaving), came_back=came_back)
        if balance.is_shedding != was_shedding:
            what = "too much, some are sent to other nodes" if balance.is_shedding else "none is sent away any more"
            log.info("this node has %d clients: %s", self._evacuation.clients, what)
        if isinstance(balance, AskedBalance) and balance.is_over:
            self._ended(balance)

    def _choose(self) -> bool:
        """Who goes until the next look. Whether any stays because it came in this run."""
        excess, traffic = self._excess, self._traffic
        number = math.ceil(excess.load) if excess.scale.is_even else REBALANCE_COMPARED_MAX
        steady, new = list[Channel](), list[Channel]()
        for channel in traffic.oldest(number):
            (steady if traffic.age_s(channel) >= excess.steady_s else new).append(channel)
        loads = [excess.scale.load(traffic.figures_of(channel)) for channel in steady]
        self._leaving.extend(steady[position] for position in chosen(loads, excess.load))
        return any(excess.scale.load(traffic.figures_of(channel)) <= excess.load for channel in new)

    def _stay(self) -> None:
        """Nobody is to go."""
        self._excess = NONE
        self._leaving.clear()

    def _paced(self, rate: float) -> EvictionPace:
        return EvictionPace(Draining(math.inf, rate), asyncio.get_running_loop().time())


def _automatic(settings: Rebalances) -> ClientBalance | None:
    return ClientBalance(settings.thresholds, settings.weights) if settings.is_automatic else None
