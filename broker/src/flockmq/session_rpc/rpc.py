"""Starts and stops session_rpc, both sides, and passes cluster events and time to them."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from flockmq import tasks
from flockmq.delivery.session_packets import ClientPackets
from flockmq.membership.cluster import Cluster
from flockmq.membership.slot_table import LET_GO, REGISTER, REGISTRY, TAKE, SlotMove
from flockmq.session_rpc.client import SessionRpcClient
from flockmq.session_rpc.notes import Notes
from flockmq.session_rpc.ports import ClientConnections, SessionProxies
from flockmq.session_rpc.server import SessionRpcServer

log: Final = logging.getLogger(__name__)

TICK_S: Final = 0.1
SWEEP_S: Final = 1.0


class SessionRpc:
    """`start` it with the cluster, before clients connect."""

    def __init__(
        self, cluster: Cluster, packets: ClientPackets, clients: ClientConnections, proxies: SessionProxies
    ) -> None:
        self.notes = Notes(cluster, packets)
        self.client = SessionRpcClient(self.notes, clients, proxies)
        self.server = SessionRpcServer(self.notes, cluster)
        self.tick_s = TICK_S
        self.sweep_s = SWEEP_S
        self._cluster = cluster
        self._packets = packets
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        cluster = self._cluster
        self.client.start()
        self.server.start()
        self._packets.on_received = self.client.hear_deliveries
        cluster.on_node_gone += [self.notes.forget, self.server.node_gone]
        slots = cluster.slots
        slots.listen(LET_GO, self.server.let_go)
        slots.listen(REGISTRY, self.server.own)
        slots.listen(TAKE, self.server.take)
        slots.listen(REGISTER, self._register)
        cluster.on_core_linked.append(self._core_linked)
        cluster.on_link_lost.append(self.server.link_lost)
        known = [SlotMove(slot, "", owner) for slot, owner in enumerate(slots.owners) if owner]
        self.server.own(known)
        self.server.take(known)
        self._register(known)
        self._tasks = [
            tasks.vital(self._tick(), "home-beat"),
            tasks.vital(self.server.publish_purged_wills(), "home-mourn"),
            tasks.vital(self._sweep(), "home-sweep"),
        ]

    async def stop(self) -> None:
        await tasks.end(*self._tasks)
        await self.client.stop()
        self.notes.stop()

    def rename(self, me: str) -> None:
        """This node has a new incarnation: it owns no slots, and registers its connections at all owners again. For a
        while its table may give its slots to the old incarnation, although others know already that they belong to
        the new one. Notes about those slots wait for the table.
        """
        self.notes.me = me
        self.server.let_go_of_all()
        self.client.slots_moved([slot for slot, owner in enumerate(self._cluster.slots.owners) if owner])

    def dropped(self) -> tuple[tuple[str, int], ...]:
        """Number of notes that found no room, by reason. They are repeated later."""
        return ("unloaded", self.server.dropped), ("unlinked", self.notes.dropped)

    def _register(self, moves: list[SlotMove]) -> None:
        self.client.slots_moved([move.slot for move in moves if move.owner])

    def _core_linked(self, incarnation: str) -> None:
        """Notes from before the link was lost may be lost too."""
        self.client.core_linked(incarnation, self._cluster.slots.slots_of(incarnation))
        self.notes.schedule()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.tick_s)
            try:
                self.tick_once(asyncio.get_running_loop().time())
            except Exception:
                log.exception("a tick of the owners of client ids failed")

    def tick_once(self, now: float) -> None:
        self.notes.schedule()
        self.client.tick(now)
        self.server.tick(now)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.sweep_s)
            try:
                await self.server.sweep()
            except Exception:
                log.exception("what purged nodes held could not be freed; it is tried again")
