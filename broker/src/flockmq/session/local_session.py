"""A clean session at the node of its connection: subscriptions, and messages in both directions.

No I/O: the time comes from the sink. The session ends with its connection, so nothing is sent again. Of messages in
flight it keeps only those that other members of a shared subscription may still get. Invariants: a QoS 2 packet id of
the client is remembered from PUBLISH to PUBREL; at most `window` packet ids are in use. Other messages wait in order in
`queue`, within its bounds in messages and bytes.

    client → server     QoS 2   PUBLISH → awaiting_rel → PUBREL → forgotten
    server → client     QoS 1   sent → PUBACK → done
                        QoS 2   sent → PUBREC → released → PUBCOMP → done
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import i32, mypyc_attr

from flockmq.mqtt import frame
from flockmq.mqtt.message import StoredMessage, packet_of, with_packet_id
from flockmq.routing.sink import Sink
from flockmq.routing.subscriber import QUEUED, REFUSED, SENT, Subscriber
from flockmq.session.client_session import DONE, UNKNOWN, ClientSession, SubscribeChange, UnsubscribeChange
from flockmq.session.limits import Limits

AWAITS_PUBACK: Final = 1
AWAITS_PUBREC: Final = 2
AWAITS_PUBCOMP: Final = 3


@mypyc_attr(acyclic=True)
class LocalSession(Subscriber, ClientSession):
    """`expiry_s`: the session expiry that the client asked for. If it isn't 0, an owner runs a durable session instead.
    Empty containers are None, to keep idle sessions small.
    """

    __slots__ = (
        "_next_id", "awaiting_rel", "expiry_s", "inflight", "kept", "limits", "queue", "queue_bytes", "window",
    )  # fmt: skip

    def __init__(
        self, sink: Sink, client_id: bytes, limits: Limits, window: int, max_packet_bytes: int = 0, expiry_s: int = 0
    ) -> None:
        super().__init__(sink, client_id, max_packet_bytes)
        self.limits = limits
        self.expiry_s = expiry_s
        self.awaiting_rel: dict[int, float] | None = None
        self.inflight: dict[int, int] | None = None
        self.kept: dict[int, StoredMessage] | None = None
        self.queue: deque[StoredMessage | bytes] | None = None
        self.queue_bytes: int = 0
        self.window: i32 = window
        self._next_id: i32 = 0

    # Subscriptions.

    def subscribe(self, change: SubscribeChange) -> None:
        change.subscribe_here()

    def unsubscribe(self, change: UnsubscribeChange) -> None:
        change.unsubscribe_here()

    def is_remote(self) -> bool:
        return False

    def send_again(self) -> None:
        """A clean session has nothing to send again."""

    def erase(self) -> None:
        """The session has ended: free its messages, even if something still refers to it, as the fan-out of a message
        that is being delivered.
        """
        self.is_detached = True
        self.subscriptions.clear()
        self.inflight = self.kept = self.queue = self.awaiting_rel = None
        self.queue_bytes = 0

    # Messages to the client.

    def offer(self, packet: bytes, packet_id: int, qos: int, stored: StoredMessage | None = None) -> int:
        """Send a message, or queue it while the window is full. Uses the publisher's packet id if that is free, so the
        packet can be sent unchanged. Returns SENT, QUEUED or REFUSED.
        """
        inflight = self.inflight
        if inflight is None:
            self.inflight = inflight = {}
        if self.queue or len(inflight) >= self.window:
            return self._enqueue(packet if stored is None else stored)
        if packet_id in inflight:
            packet_id = self._free_id(inflight)
            packet = with_packet_id(packet, packet_id)
        inflight[packet_id] = qos
        if stored is not None and stored.share:
            self._keep(packet_id, stored.under(packet))
        self._put(packet)
        return SENT

    def is_connected(self) -> bool:
        return True

    def is_congested(self) -> bool:
        return self.limits.is_congested(self.waiting(), self.queue_bytes)

    def held_bytes(self) -> int:
        size = self.queue_bytes + (0 if self.aliases is None else self.aliases.size_bytes)
        return size if self.kept is None else size + sum([len(stored.packet) for stored in self.kept.values()])

    def cut_off(self) -> bool:
        self.sink.overflow()
        return False

    def waiting(self) -> int:
        """Number of messages for which the window has no place."""
        queue = self.queue
        return 0 if queue is None else len(queue)

    def takes(self, packet_bytes: int) -> bool:
        if not self.queue and (self.inflight is None or len(self.inflight) < self.window):
            return True
        return not self.limits.is_full(self.waiting(), self.queue_bytes + packet_bytes)

    def has_room(self, packet_bytes: int) -> bool:
        queue = self.queue
        if not queue and (self.inflight is None or len(self.inflight) < self.window):
            return True
        return self.limits.is_mostly_free(self.waiting(), self.queue_bytes + packet_bytes)

    def _enqueue(self, entry: StoredMessage | bytes) -> int:
        """Queue a packet. Returns QUEUED, or REFUSED if the queue is full; the caller then disconnects the client."""
        queue = self.queue
        if queue is None:
            self.queue = queue = deque()
        size = len(packet_of(entry))
        if self.limits.is_full(len(queue), self.queue_bytes + size):
            return REFUSED
        queue.append(entry)
        self.queue_bytes += size
        return QUEUED

    def take_out(self, gone: list[StoredMessage | bytes], stay: list[StoredMessage | bytes]) -> None:
        """Remove `gone` from the queue. Only `stay` remains."""
        self.queue = deque(stay)
        self.queue_bytes = sum([len(packet_of(entry)) for entry in stay])

    def unacknowledged_shared(self) -> list[StoredMessage]:
        """The session ends. Returns messages that other members of shared subscriptions should get: QoS 1 messages
        without PUBACK, and messages that were never sent [MQTT-4.8.2-5].
        """
        left: list[StoredMessage] = []
        inflight = self.inflight
        if self.kept is not None and inflight is not None:
            for packet_id, entry in self.kept.items():
                if inflight.get(packet_id) == AWAITS_PUBACK and entry.share:
                    left.append(entry)
        for waiting in self.queue or ():
            if isinstance(waiting, StoredMessage) and waiting.share:
                left.append(waiting)
        return left

    def _free_id(self, inflight: dict[int, int]) -> int:
        packet_id = self._next_id
        while True:
            packet_id = packet_id % 65535 + 1
            if packet_id not in inflight:
                self._next_id = packet_id
                return packet_id

    def _keep(self, packet_id: int, stored: StoredMessage) -> None:
        kept = self.kept
        if kept is None:
            self.kept = kept = {}
        kept[packet_id] = stored

    def _put(self, packet: bytes) -> None:
        aliases = self.aliases
        self.sink.put(packet if aliases is None else aliases.shorten(packet))
        self.sink.messages_out += 1

    def _send_waiting(self, inflight: dict[int, int]) -> None:
        """Send waiting messages while the window has room."""
        queue = self.queue
        while queue and len(inflight) < self.window:
            entry = queue.popleft()
            self.queue_bytes -= len(packet_of(entry))
            packet = self._sendable(entry)
            if not packet:
                continue
            packet_id = self._free_id(inflight)
            packet = with_packet_id(packet, packet_id)
            inflight[packet_id] = packet[0] >> 1 & 3
            if isinstance(entry, StoredMessage) and entry.share:
                self._keep(packet_id, entry.under(packet))
            self._put(packet)

    def _sendable(self, entry: StoredMessage | bytes) -> bytes:
        """A waiting message in the form in which it is sent; b"": it has expired, or is too large for the client."""
        packet = entry.now(self.sink.now_s()) if isinstance(entry, StoredMessage) else entry
        if not packet or 0 < self.max_packet_bytes < len(packet):
            self.sink.unsendable(len(packet))
            return b""
        return packet

    # Acknowledgements from the client.

    def puback(self, packet_id: int) -> bool:
        """Returns False if no QoS 1 message has this packet id."""
        inflight = self.inflight
        if inflight is None or inflight.get(packet_id) != AWAITS_PUBACK:
            return False
        del inflight[packet_id]
        if self.kept is not None:
            self.kept.pop(packet_id, None)
        if self.queue:
            self._send_waiting(inflight)
        return True

    def pubrec(self, packet_id: int, refused: bool) -> int:
        """`refused`: the reason code is ≥ 0x80, which ends the exchange [MQTT-4.4.0-2]. Returns UNKNOWN or DONE."""
        inflight = self.inflight
        if inflight is None:
            return UNKNOWN
        state = inflight.get(packet_id)
        if state != AWAITS_PUBREC and (state != AWAITS_PUBCOMP or refused):
            return UNKNOWN
        del inflight[packet_id]
        if self.kept is not None:
            self.kept.pop(packet_id, None)
        if refused:
            self._send_waiting(inflight)
        else:
            # Moved to the end: PUBRELs are sent in the order of the PUBRECs [MQTT-4.6.0-4].
            inflight[packet_id] = AWAITS_PUBCOMP
        return DONE

    def pubcomp(self, packet_id: int) -> bool:
        """Returns False if no QoS 2 message with this packet id was released."""
        inflight = self.inflight
        if inflight is None or inflight.get(packet_id) != AWAITS_PUBCOMP:
            return False
        del inflight[packet_id]
        self._send_waiting(inflight)
        return True

    def contradicts(self, kind: int, packet_id: int) -> bool:
        """True if this PUBACK, PUBREC or PUBCOMP is of a wrong type for the exchange with this packet id."""
        state = 0 if self.inflight is None else self.inflight.get(packet_id, 0)
        if kind == frame.PUBREC:
            return state == AWAITS_PUBACK
        if kind == frame.PUBACK:
            return state in (AWAITS_PUBREC, AWAITS_PUBCOMP)
        return state in (AWAITS_PUBACK, AWAITS_PUBREC)

    # The client's own QoS 2 messages.

    def pubrel(self, packet_id: int) -> int:
        return DONE if self.release(packet_id) else UNKNOWN
