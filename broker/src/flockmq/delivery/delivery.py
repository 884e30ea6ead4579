"""All messages between this node and others, over the cluster's links.

    nodes     messages for clients of other nodes, whose sessions end with their connections (`node_forwarding`)
    slots     messages for sessions that last, to the owners of their slots (`slot_links`)
    packets   what the owner of a session sends to its client's node (`client_packets`)

Delivery to a node and to a slot are two protocols. A node takes a message into its memory, and publishers are released
after 200 ms; it is waited for until it accepts, or is purged. A slot's owner takes it when it is committed, and nobody
is released before; when slots move, what isn't accepted goes to the next owner.
"""

from __future__ import annotations

import asyncio

from flockmq import bounds
from flockmq.delivery.client_packets import ClientPackets
from flockmq.delivery.node_forwarding import NodeForwarding
from flockmq.delivery.slot_links import SlotLinks
from flockmq.membership.cluster import Cluster
from flockmq.routing.sink import Sink


class Delivery:
    """Make it before anything else that listens to the cluster: it must hear first of who comes and goes."""

    def __init__(self, turn: list[Sink], cluster: Cluster) -> None:
        self.nodes = NodeForwarding(turn, cluster)
        self.slots = SlotLinks(turn, cluster)
        self.packets = ClientPackets(cluster)
        self._cluster = cluster

    @property
    def late_bytes(self) -> int:
        """What came by links that their nodes had left, and was dropped."""
        return sum(part.latest.late_bytes for part in (self.nodes, self.slots, self.packets))

    async def until_accepted(self) -> None:
        """Returns when no owner of a slot, and no node that stays, is still to accept a message of QoS 1 or 2, or
        FORWARDED_MAX_S later."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + bounds.FORWARDED_MAX_S
        while loop.time() < deadline and self._is_awaited():  # noqa: ASYNC110 - acceptances are no event
            await asyncio.sleep(bounds.FORWARDED_LOOK_S)

    def _is_awaited(self) -> bool:
        return self.slots.lanes.waiting_messages > 0 or not all(map(self._cluster.has_left, self.nodes.awaited()))

    def stop(self) -> None:
        """What wasn't accepted is lost. Behind `Cluster.stop`."""
        self.nodes.stop()
        self.slots.stop()
