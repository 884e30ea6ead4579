"""Rebalancing: a node that has more clients than its share sends the excess to other nodes, at a limited rate.

    look at the cluster ─▶ client_balance.py: too many for long? ─▶ disconnect the oldest connections with 0x9C

Meanwhile the node still accepts clients: the load balancer chooses where a client reconnects. The oldest connections
are disconnected first, so a client that has just reconnected here is moved last. The owners hold back the wills of
these clients for WILL_HELD_S, as in an evacuation.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from flockmq.bounds import EVICTION_TICK_S, REBALANCE_LOOK_S
from flockmq.management.view import ClusterState
from flockmq.membership.cluster import Cluster
from flockmq.node.client_balance import NONE, Balancing, ClientBalance, Excess
from flockmq.node.evacuation import Evacuation
from flockmq.node.eviction_pace import Draining, EvictionPace, others
from flockmq.telemetry.sample import Sample

log: Final = logging.getLogger(__name__)


class Rebalancing:
    """One per node. `tell` returns the state of the cluster."""

    def __init__(
        self,
        evacuation: Evacuation,
        cluster: Cluster,
        tell: Callable[[], Awaitable[ClusterState]],
        settings: Balancing | None,
        rate: float,
    ) -> None:
        """`rate` is in clients per second, for all nodes together. If `settings` is None, there is no rebalancing."""
        self._evacuation = evacuation
        self._cluster = cluster
        self._tell = tell
        self._balance = None if settings is None else ClientBalance(settings)
        self._excess = NONE
        """What is still to go, by the last comparison."""
        self._pace = EvictionPace(Draining(math.inf, rate), asyncio.get_running_loop().time())

    def samples(self) -> Iterator[Sample]:
        yield Sample("flockmq_rebalancing", self._balance is not None and self._balance.is_shedding)

    def excess(self) -> Excess:
        """How many clients are still to go now, and this node's part of the rate; NONE while it doesn't rebalance."""
        return self._excess

    async def run(self) -> None:
        """Rebalance until cancelled."""
        if self._balance is None:
            return
        while True:
            await self._round(self._balance)

    async def _round(self, balance: ClientBalance) -> None:
        """Compare this node with the others, then disconnect clients until the next comparison."""
        now, was_shedding = asyncio.get_running_loop().time(), balance.is_shedding
        state = await self._tell()
        self._pace.heard(others(state.nodes, self._cluster.incarnation).connect_wait_s)
        clients, is_emptied = self._evacuation.clients, self._evacuation.is_emptied
        excess = NONE if is_emptied else balance.look(now, state.nodes, self._cluster.incarnation, clients)
        if is_emptied:
            balance.pause(now)
        if balance.is_shedding != was_shedding:
            text = (
                "too many, the excess is sent to other nodes" if balance.is_shedding else "none is sent away any more"
            )
            log.info("this node has %d clients: %s", clients, text)
        self._excess, left = excess, excess.clients
        for _ in range(round(REBALANCE_LOOK_S / EVICTION_TICK_S)):
            await asyncio.sleep(EVICTION_TICK_S)
            if left and not self._evacuation.is_emptied:
                number = self._pace.due(asyncio.get_running_loop().time(), left, excess.share)
                left -= number
                self._excess = excess._replace(clients=left)
                self._evacuation.evict(number)
                balance.sent(number)
