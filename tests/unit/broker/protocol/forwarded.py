"""Other nodes that take what is published, clients that are asked about, and what they hear."""

from __future__ import annotations

from collections.abc import Callable

from flockmq.protocol.client import ASKED
from flockmq.routing.message_id import origin_of, session_source
from flockmq.routing.targets import NodeTarget
from unit.broker.protocol.harness import Client, Node, publish


class OtherNode(NodeTarget):
    """Takes what is forwarded; accepts when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[bytes] = []
        self.waiting: list[Callable[[], None]] = []
        self.has_room = True
        self.takes_once = False

    def put_run(self, version: int, chunk: bytes) -> None:
        self.taken.append(chunk)

    def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        if not self.has_room:
            return False
        self.has_room = not self.takes_once
        self.taken.append(packet)
        self.waiting.append(on_accepted)
        return True

    def put_logged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> None:
        self.taken.append(packet)
        self.waiting.append(on_accepted)

    def takes(self, packet_bytes: int) -> bool:
        return self.has_room

    def flush(self) -> None:
        pass


def other(node: Node, filter: bytes) -> OtherNode:
    peer = OtherNode()
    node.router.remote.add(filter, peer)
    node.router.changed(filter)
    return peer


def message(number: int, qos: int = 1, retain: bool = False) -> bytes:
    return publish(4, "a", str(number), qos=qos, packet_id=number if qos else 0, retain=retain)


def acks(client: Client) -> list[int]:
    return [packet[3] for packet in client.packets()]


def asking(node: Node, version: int = 5) -> Client:
    """A client whose every message to `a` is asked about."""
    node.port.verdicts = {b"a": ASKED}
    publisher = node.client("p", version)
    publisher.set_must_authorize(True)
    return publisher


def decide(node: Node, number: int, allowed: bool = True) -> None:
    node.port.asked[number][2](allowed)
    node.turn()


def of_session(number: int) -> bytes:
    return origin_of(session_source(bytes(8)), number)
