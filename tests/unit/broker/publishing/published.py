"""A node that publishes messages that no connection waits for, and others that take them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from flockmq.auth.stored_authorization import StoredAuthorization
from flockmq.mqtt.message import Publish, publication
from flockmq.mqtt.reason import Reason
from flockmq.publishing.unattended import Unattended
from flockmq.routing.targets import NodeTarget, SlotDispatcher, SlotSet
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Node


class OtherNode(NodeTarget):
    """Takes what is forwarded while it `has_room`; once it `is_purged` it accepts all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[bytes] = []
        self.waiting: list[Callable[[], None]] = []
        self.has_room = True
        self.is_purged = False

    def takes(self, packet_bytes: int) -> bool:
        return self.has_room

    def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        if self.is_purged:
            on_accepted()
        elif self.has_room:
            self.taken.append(packet)
            self.waiting.append(on_accepted)
        return self.has_room


class Dispatcher(SlotDispatcher):
    """The way to the owners of durable sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[bytes] = []
        self.accepts: list[Callable[[], None]] = []
        self.has_room = True

    def takes(self, slots: SlotSet, message: Publish, *, can_be_refused: bool = True) -> bool:
        return self.has_room

    def put_acknowledged(self, slots: SlotSet, message: Publish, on_accepted: Callable[[], None]) -> int:
        assert self.has_room
        self.taken.append(message.packet)
        self.accepts.append(on_accepted)
        return 1


class Published:
    """A node whose log answers what `reasons` say, and where time goes on as it is told to."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.node = Node(limits)
        self.router = self.node.router
        self.dispatcher = Dispatcher()
        self.router.dispatcher = self.dispatcher
        self.subscriber = self.node.client("s")
        self.node.subscribe(self.subscriber, ("t", 1))
        self.logged: list[bytes] = []
        self.reasons: list[int] = []
        self.accepted: list[str] = []
        self.now_s = 100.0
        self.tasks: set[asyncio.Future[None]] = set()
        self.owners: list[StoredAuthorization | None] = []
        self.publishing = Unattended(
            self.router, self.write, self.delay, self.spawn, self.node.turn, lambda: self.now_s
        )
        self.router.pauses.on_release = self.publishing.go_on

    async def write(self, message: Publish) -> int:
        self.logged.append(message.topic)
        return self.reasons.pop(0) if self.reasons else Reason.SUCCESS

    async def delay(self, message: Publish, authorization: StoredAuthorization | None) -> int:
        self.owners.append(authorization)
        return await self.write(message)

    def spawn(self, work: Awaitable[None]) -> None:
        self.tasks.add(asyncio.ensure_future(work))

    def publish(
        self,
        name: str,
        *,
        qos: int = 1,
        retain: bool = False,
        topic: bytes = b"t",
        expiry_s: int = -1,
        user: bytes | None = None,
    ) -> None:
        encoded = b"" if expiry_s < 0 else b"\x02" + expiry_s.to_bytes(4, "big")
        message = publication(5, qos, retain, topic, name.encode(), encoded, expiry_s)
        message.user = user
        self.publishing.publish(message, lambda: self.accepted.append(name))

    async def rest(self) -> None:
        """Until nothing more happens by itself; tries come one behind the other."""
        for _ in range(20):
            await asyncio.sleep(0)

    def got(self) -> int:
        return len(self.subscriber.packets())


def will(name: str, user: bytes | None = None, *, retain: bool = False, topic: bytes = b"t") -> Publish:
    message = publication(5, 1, retain, topic, name.encode(), b"")
    message.user = user
    return message
