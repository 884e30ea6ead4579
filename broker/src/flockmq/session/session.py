"""The state that MQTT calls a session: subscriptions, what is in flight, and what waits [MQTT-4.1].

Pure: no descriptor, no clock, no event loop. A clean session lives on the node of its connection and ends with it.

What always holds: at most `max_inflight` packet ids are in use towards the client; what doesn't fit waits in order
in `queue`, within its bounds in messages and bytes; a QoS 2 packet id is remembered from PUBLISH to PUBREL.

    server → client     QoS 1   sent → PUBACK → done
                        QoS 2   sent → PUBREC → released → PUBCOMP → done
    client → server     QoS 2   PUBLISH → awaiting_rel → PUBREL → forgotten
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import MQUEUE_MAX_BYTES
from flockmq.session.publish import with_packet_id
from flockmq.session.sink import Sink

if TYPE_CHECKING:
    from flockmq.session.subscription import Subscription

SENT: Final = 0
QUEUED: Final = 1
REFUSED: Final = 2

AWAITS_PUBACK: Final = 1
AWAITS_PUBREC: Final = 2
AWAITS_PUBCOMP: Final = 3


@mypyc_attr(acyclic=True)
class Session:
    """One client's session. Containers that are empty are None: an idle session is small."""

    __slots__ = (
        "_next_id",
        "awaiting_rel",
        "client_id",
        "inflight",
        "max_inflight",
        "max_packet_bytes",
        "max_queue_messages",
        "queue",
        "queue_bytes",
        "sink",
        "subscriptions",
    )

    def __init__(
        self, sink: Sink, client_id: bytes, max_inflight: int, max_queue_messages: int, max_packet_bytes: int
    ) -> None:
        self.sink = sink
        self.client_id = client_id
        self.max_inflight = max_inflight
        self.max_queue_messages = max_queue_messages
        self.max_packet_bytes = max_packet_bytes
        self.inflight: dict[int, int] | None = None
        self.queue: deque[bytes] | None = None
        self.queue_bytes: int = 0
        self.awaiting_rel: set[int] | None = None
        self.subscriptions: Subscription | dict[bytes, Subscription] | None = None
        self._next_id: int = 0

    # Subscriptions: none, one kept as itself, or many by filter.

    def subscription(self, filter: bytes) -> Subscription | None:
        held = self.subscriptions
        if held is None:
            return None
        if isinstance(held, dict):
            return held.get(filter)
        return held if held.filter == filter else None

    def all_subscriptions(self) -> list[Subscription]:
        held = self.subscriptions
        if held is None:
            return []
        return list(held.values()) if isinstance(held, dict) else [held]

    def subscription_count(self) -> int:
        held = self.subscriptions
        if held is None:
            return 0
        return len(held) if isinstance(held, dict) else 1

    def add_subscription(self, subscription: Subscription) -> None:
        held = self.subscriptions
        if held is None:
            self.subscriptions = subscription
        elif isinstance(held, dict):
            held[subscription.filter] = subscription
        elif held.filter == subscription.filter:
            self.subscriptions = subscription
        else:
            self.subscriptions = {held.filter: held, subscription.filter: subscription}

    def remove_subscription(self, filter: bytes) -> Subscription | None:
        held = self.subscriptions
        if held is None:
            return None
        if isinstance(held, dict):
            removed = held.pop(filter, None)
            if not held:
                self.subscriptions = None
            return removed
        if held.filter != filter:
            return None
        self.subscriptions = None
        return held

    # Towards the client.

    def send(self, packet: bytes, packet_id: int, qos: int) -> int:
        """Send a QoS ≥ 1 PUBLISH, or queue it while the window is full: SENT, QUEUED, or REFUSED for want of room.

        The publisher's packet id is taken over where it is free, so that the packet can leave byte by byte as it came.
        """
        inflight = self.inflight
        if inflight is None:
            self.inflight = inflight = {}
        if self.queue or len(inflight) >= self.max_inflight:
            return self._enqueue(packet)
        if packet_id in inflight:
            packet_id = self._free_id(inflight)
            packet = with_packet_id(packet, packet_id)
        inflight[packet_id] = qos
        self.sink.put(packet)
        return SENT

    def is_crowded(self) -> bool:
        """So many messages wait that whoever publishes to this session should pause."""
        queue = self.queue
        return queue is not None and (
            len(queue) * 2 > self.max_queue_messages or self.queue_bytes * 2 > MQUEUE_MAX_BYTES
        )

    def has_room(self, packet_bytes: int) -> bool:
        """A packet more leaves most of the queue to what is published."""
        queue = self.queue
        if not queue and (self.inflight is None or len(self.inflight) < self.max_inflight):
            return True
        waiting = 0 if queue is None else len(queue)
        return waiting * 4 < self.max_queue_messages and self.queue_bytes + packet_bytes <= MQUEUE_MAX_BYTES // 4

    def _enqueue(self, packet: bytes) -> int:
        queue = self.queue
        if queue is None:
            self.queue = queue = deque()
        if len(queue) >= self.max_queue_messages or self.queue_bytes + len(packet) > MQUEUE_MAX_BYTES:
            return REFUSED
        queue.append(packet)
        self.queue_bytes += len(packet)
        return QUEUED

    def _free_id(self, inflight: dict[int, int]) -> int:
        packet_id = self._next_id
        while True:
            packet_id = packet_id % 65535 + 1
            if packet_id not in inflight:
                self._next_id = packet_id
                return packet_id

    def _send_queued(self, inflight: dict[int, int]) -> None:
        queue = self.queue
        while queue and len(inflight) < self.max_inflight:
            packet = queue.popleft()
            self.queue_bytes -= len(packet)
            packet_id = self._free_id(inflight)
            inflight[packet_id] = packet[0] >> 1 & 3
            self.sink.put(with_packet_id(packet, packet_id))

    def acknowledged(self, packet_id: int) -> bool:
        """PUBACK. False: no QoS 1 message has this packet id."""
        inflight = self.inflight
        if inflight is None or inflight.get(packet_id) != AWAITS_PUBACK:
            return False
        del inflight[packet_id]
        if self.queue:
            self._send_queued(inflight)
        return True

    def received(self, packet_id: int, refused: bool) -> bool:
        """PUBREC; with a reason code ≥ 0x80 it ends the exchange [MQTT-4.3.3-4]. False: unknown packet id."""
        inflight = self.inflight
        if inflight is None:
            return False
        state = inflight.get(packet_id)
        if refused and state == AWAITS_PUBREC:
            del inflight[packet_id]
            self._send_queued(inflight)
            return True
        if state in (AWAITS_PUBREC, AWAITS_PUBCOMP):
            inflight[packet_id] = AWAITS_PUBCOMP
            return True
        return False

    def completed(self, packet_id: int) -> bool:
        """PUBCOMP. False: no QoS 2 message was released under this packet id."""
        inflight = self.inflight
        if inflight is None or inflight.get(packet_id) != AWAITS_PUBCOMP:
            return False
        del inflight[packet_id]
        self._send_queued(inflight)
        return True

    # From the client: QoS 2 method A, the packet id is kept until PUBREL [MQTT-4.3.3].

    def is_repeat(self, packet_id: int) -> bool:
        """This QoS 2 packet id was received and not yet released [MQTT-4.3.3-10]."""
        return self.awaiting_rel is not None and packet_id in self.awaiting_rel

    def remember(self, packet_id: int) -> None:
        if self.awaiting_rel is None:
            self.awaiting_rel = set()
        self.awaiting_rel.add(packet_id)

    def released(self, packet_id: int) -> bool:
        """PUBREL. False: unknown packet id (PUBCOMP 0x92)."""
        awaiting = self.awaiting_rel
        if awaiting is None or packet_id not in awaiting:
            return False
        awaiting.discard(packet_id)
        if not awaiting:
            self.awaiting_rel = None
        return True
