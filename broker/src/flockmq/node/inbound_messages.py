"""Delivers messages from other nodes to this node's clients, and resumes publishers that waited for tables or nodes.

Invariants: no QoS 1 or 2 message is matched while the tables may be stale. A publisher that was paused because of
another node resumes when that node accepts messages again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from flockmq.bounds import HELD_LINES_PER_TURN
from flockmq.delivery.delivery import Delivery
from flockmq.membership.cluster import Cluster
from flockmq.membership.staleness import Staleness
from flockmq.mqtt.errors import PacketError
from flockmq.routing import forwarded
from flockmq.routing.router import Router
from flockmq.routing.shared_frames import SHARED

log: Final = logging.getLogger(__name__)


class InboundMessages:
    """`flush` makes the reactor write queued output. `spawn` runs a coroutine as a task. `is_serving` is False while
    the node starts or stops."""

    def __init__(
        self,
        router: Router,
        flush: Callable[[], None],
        spawn: Callable[[Awaitable[None]], None],
        is_serving: Callable[[], bool],
    ) -> None:
        self._router = router
        self._flush = flush
        self._spawn = spawn
        self._is_serving = is_serving
        self._staleness: Staleness | None = None

    def listen(self, cluster: Cluster, delivery: Delivery) -> None:
        self._staleness = cluster.staleness
        cluster.on_node_gone.append(self._node_gone)
        delivery.nodes.on_returned = self._returned
        delivery.nodes.on_received = self._forwarded
        delivery.nodes.on_drained = delivery.slots.on_drained = self._drained
        cluster.staleness.on_change = self._stale
        self._router.stale = cluster.staleness.is_stale

    def stood_still(self) -> None:
        """The process was suspended. Check whether the tables are stale, before the reactor reads what arrived
        meanwhile."""
        if self._staleness is not None:
            self._staleness.look(asyncio.get_running_loop().time())

    def _forwarded(self, incarnation: str, version: int, chunk: bytes) -> None:
        try:
            forwarded.take(self._router, version, chunk)
        except PacketError as error:
            log.error("%s forwarded what can't be delivered: %s", incarnation, error)
        self._flush()

    def _drained(self, peer: object) -> None:
        self._router.pauses.release(peer)
        self._flush()

    def _node_gone(self, incarnation: str) -> None:
        self._router.shared.others_changed()

    def _returned(self, batches: list[tuple[int, bytes]]) -> None:
        self._spawn(self._share_again(batches))

    async def _share_again(self, batches: list[tuple[int, bytes]]) -> None:
        """Dispatch the shared messages again that a purged node never accepted, one batch per event-loop iteration."""
        self._router.shared.others_changed()
        for version, chunk in batches:
            self._router.shared.returned(version & ~SHARED, chunk)
            self._flush()
            await asyncio.sleep(0)

    def _stale(self, stale: bool) -> None:
        self._router.stale = stale
        if stale:
            level = logging.WARNING if self._is_serving() else logging.INFO
            log.log(level, "the tables may be old: QoS 1 and 2 wait")
        else:
            self._spawn(self._go_on())

    async def _go_on(self) -> None:
        """Match the messages that waited while the tables were stale, some clients per event-loop iteration."""
        more = True
        while more:
            more = self._router.resume_held(HELD_LINES_PER_TURN)
            self._flush()
            await asyncio.sleep(0)
