"""Nodes of a cluster that publish to shared subscriptions, with links that can be full or cut."""

from __future__ import annotations

from collections.abc import Callable

from flockmq.rlog.schema import SharedMembers
from flockmq.routes.shared_members import RemoteSharedMembers
from flockmq.routing import forwarded
from flockmq.routing.shared_groups import STRATEGIES
from flockmq.routing.targets import NodeTarget
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish

GROUP = "$share/g/t/#"


class Link(NodeTarget):
    """The road to another node: `deliver` what waits, or give it back as a purge does."""

    def __init__(self, there: Node) -> None:
        super().__init__()
        self.there = there
        self.full = False
        self.waiting: list[tuple[int, bytes, Callable[[], None] | None]] = []

    def put_run(self, version: int, chunk: bytes) -> None:
        self.waiting.append((version, chunk, None))

    def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        if self.full:
            return False
        self.waiting.append((version, packet, on_accepted))
        return True

    def takes(self, packet_bytes: int) -> bool:
        return not self.full

    def deliver(self) -> None:
        waiting, self.waiting = self.waiting, []
        for version, chunk, on_accepted in waiting:
            forwarded.take(self.there.router, version, chunk)
            if on_accepted is not None:
                on_accepted()
        self.there.turn()


class Cluster:
    """Nodes that know of each other's members what `tell` told them."""

    def __init__(self, count: int, strategy: str = "round_robin", limits: Limits | None = None) -> None:
        self.nodes = {f"n{number}@0": Node(limits, number) for number in range(count)}
        self.links = {
            (here, there): Link(self.nodes[there]) for here in self.nodes for there in self.nodes if here != there
        }
        self.shares = {name: RemoteSharedMembers(node.router, name) for name, node in self.nodes.items()}
        self.dead: set[str] = set()
        self.told: dict[str, tuple[int, int]] = {}
        for name, node in self.nodes.items():
            shared = node.router.shared
            shared.me = name
            shared.strategy = STRATEGIES[strategy]
            shared.keeps_deals = lambda: True
            shared.find_peer = lambda there, here=name: self.link(here, there)  # type: ignore[misc]
            self.shares[name].go_live()

    def link(self, here: str, there: str) -> Link | None:
        return None if there in self.dead else self.links.get((here, there))

    def tell(self, share_filter: str = GROUP) -> None:
        """The log has all nodes' counts."""
        for name, node in self.nodes.items():
            if name in self.dead:
                continue
            counts = node.router.shared.count(share_filter.encode())
            old = self.told.pop(name, None)
            if counts != (0, 0):
                self.told[name] = counts
            for shares in self.shares.values():
                if counts != (0, 0):
                    shares.put((share_filter.encode(), name), SharedMembers(*counts), old and SharedMembers(*old))
                elif old is not None:
                    shares.delete((share_filter.encode(), name), SharedMembers(*old))

    def settle(self) -> None:
        while any(link.waiting for link in self.links.values()):
            for link in self.links.values():
                link.deliver()
        for node in self.nodes.values():
            node.turn()

    def __getitem__(self, number: int) -> Node:
        return self.nodes[f"n{number}@0"]

    def dropped(self) -> int:
        return sum(node.router.counters.dropped_no_member for node in self.nodes.values())


def payloads(client: Client) -> list[str]:
    """Of the PUBLISH packets that came, in order; each has a topic of 3 bytes."""
    packets = [packet for packet in client.packets() if packet[0] >> 4 == 3]
    tail = {(4, 0): 7, (4, 1): 9, (5, 0): 8, (5, 1): 10}
    return [packet[tail[client.protocol_version, packet[0] >> 1 & 1] :].decode() for packet in packets]


def run(version: int, count: int, topic: str = "t/0") -> bytes:
    return b"".join(publish(version, topic, f"{number:04}") for number in range(count))


def got(*members: Client) -> list[str]:
    """By all of them."""
    return sorted(packet[-1:].decode() for member in members for packet in member.packets())
