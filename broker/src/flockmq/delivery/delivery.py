"""All messages between this node and others, over the cluster's links.

    nodes     messages for clean sessions of other nodes' clients (`node_forwarding`)
    slots     messages for durable sessions, to the owners of their slots (`slot_links`)
    packets   packets from the owner of a session to its client's node (`session_packets`)

Nodes and slots have different protocols. A node accepts a message in its memory. Publishers are released then, or after
200 ms unless this node is fenced. The sender keeps the message until the node accepts it or is purged. A slot's owner
accepts a message when it is committed, and no publisher is released before. If slots move, messages that weren't
accepted go to the next owner.
"""

from __future__ import annotations

import asyncio

from flockmq import bounds
from flockmq.delivery.node_forwarding import NodeForwarding
from flockmq.delivery.session_packets import ClientPackets
from flockmq.delivery.slot_links import SlotLinks
from flockmq.membership.cluster import Cluster
from flockmq.routing.sink import Sink


class Delivery:
    """Create it before anything else that listens to the cluster: it must be told first when nodes join and leave."""

    def __init__(self, turn: list[Sink], cluster: Cluster) -> None:
        self.nodes = NodeForwarding(turn, cluster)
        self.slots = SlotLinks(turn, cluster)
        self.packets = ClientPackets(cluster)
        self._cluster = cluster

    @property
    def late_bytes(self) -> int:
        """Bytes that arrived on links that their senders had left, and were dropped."""
        return sum(part.latest.late_bytes for part in (self.nodes, self.slots, self.packets))

    async def until_accepted(self) -> None:
        """Return when all QoS 1 and 2 messages are accepted, by owners of slots and by nodes that stay; or after
        FORWARDED_MAX_S."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + bounds.FORWARDED_MAX_S
        while loop.time() < deadline and self._is_awaited():  # noqa: ASYNC110 - acceptances are no event
            await asyncio.sleep(bounds.FORWARDED_LOOK_S)

    def _is_awaited(self) -> bool:
        return self.slots.sender.waiting_messages > 0 or not all(map(self._cluster.has_left, self.nodes.awaited()))

    def stop(self) -> None:
        """Messages that weren't accepted are lost. Call it after `Cluster.stop`."""
        self.nodes.stop()
        self.slots.stop()
