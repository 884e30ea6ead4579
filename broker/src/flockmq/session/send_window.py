"""What is sent to one client at QoS ≥ 1: the packet ids that are in flight, and what waits [MQTT-4.1].

Pure: no descriptor, no clock but its sink's, no event loop. It ends with the connection, so nothing is sent again, and
of what is in flight it keeps only what other members of a shared subscription may still get.

What always holds: at most `window` packet ids are in use on the connection; what doesn't fit waits in order in `queue`,
within its bounds in messages and bytes.

    QoS 1   sent → PUBACK → done
    QoS 2   sent → PUBREC → released → PUBCOMP → done
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import MQUEUE_MAX_BYTES
from flockmq.mqtt import frame
from flockmq.mqtt.message import StoredMessage, packet_of, with_packet_id
from flockmq.routing.sink import Sink
from flockmq.routing.subscriber import QUEUED, REFUSED, SENT, Subscriber
from flockmq.session.client_session import DONE, UNKNOWN
from flockmq.session.limits import Limits

AWAITS_PUBACK: Final = 1
AWAITS_PUBREC: Final = 2
AWAITS_PUBCOMP: Final = 3


@mypyc_attr(acyclic=True)
class SendWindow(Subscriber):
    """Containers that are empty are None: an idle session is small."""

    __slots__ = (
        "_next_id", "inflight", "kept", "limits", "queue", "queue_bytes", "window",
    )  # fmt: skip

    def __init__(self, sink: Sink, client_id: bytes, limits: Limits, window: int, max_packet_bytes: int) -> None:
        super().__init__(sink, client_id, max_packet_bytes)
        self.limits = limits
        self.window = window
        self.inflight: dict[int, int] | None = None
        self.kept: dict[int, StoredMessage] | None = None
        self.queue: deque[StoredMessage | bytes] | None = None
        self.queue_bytes: int = 0
        self._next_id: int = 0

    # What is published for the client.

    def offer(self, packet: bytes, packet_id: int, qos: int, stored: StoredMessage | None = None) -> int:
        """The publisher's packet id is taken over where it is free, so that the packet can leave byte by byte as it
        came. It waits while the window is full.
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
        return self.waiting() * 2 > self.limits.max_mqueue_len or self.queue_bytes * 2 > MQUEUE_MAX_BYTES

    def cut_off(self) -> bool:
        self.sink.overflow()
        return False

    def waiting(self) -> int:
        """Messages for which the window has no place."""
        queue = self.queue
        return 0 if queue is None else len(queue)

    def takes(self, packet_bytes: int) -> bool:
        if not self.queue and (self.inflight is None or len(self.inflight) < self.window):
            return True
        return not self._is_full(packet_bytes)

    def has_room(self, packet_bytes: int) -> bool:
        queue = self.queue
        if not queue and (self.inflight is None or len(self.inflight) < self.window):
            return True
        is_long = self.waiting() * 4 >= self.limits.max_mqueue_len
        return not is_long and self.queue_bytes + packet_bytes <= MQUEUE_MAX_BYTES // 4

    def _enqueue(self, entry: StoredMessage | bytes) -> int:
        """Let a packet wait: QUEUED, or REFUSED for want of room, and then the client is cut off."""
        queue = self.queue
        if queue is None:
            self.queue = queue = deque()
        size = len(packet_of(entry))
        if self._is_full(size):
            return REFUSED
        queue.append(entry)
        self.queue_bytes += size
        return QUEUED

    def _is_full(self, packet_bytes: int) -> bool:
        """The queue has no room for one more packet."""
        return self.waiting() >= self.limits.max_mqueue_len or self.queue_bytes + packet_bytes > MQUEUE_MAX_BYTES

    def take_out(self, gone: list[StoredMessage | bytes], stay: list[StoredMessage | bytes]) -> None:
        """Of what waits only this is to stay."""
        self.queue = deque(stay)
        self.queue_bytes = sum([len(packet_of(entry)) for entry in stay])

    def unacknowledged_shared(self) -> list[StoredMessage]:
        """The session is ending: its QoS 1 messages that weren't acknowledged, and of QoS 2 those that were never sent,
        which are for other members of shared subscriptions [MQTT-4.8.2-5].
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

    def _send_waiting(self, inflight: dict[int, int]) -> None:
        """There is room in the window."""
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
        """What waited, as it is to be sent first; b"": it has expired, or the client takes no packet so large."""
        packet = entry.now(self.sink.now_s()) if isinstance(entry, StoredMessage) else entry
        if not packet or 0 < self.max_packet_bytes < len(packet):
            self.sink.unsendable(len(packet))
            return b""
        return packet

    # What the client answers.

    def puback(self, packet_id: int) -> bool:
        """False: no QoS 1 message has this packet id."""
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
        """`refused`: with a reason code ≥ 0x80 it ends the exchange [MQTT-4.4.0-2]. UNKNOWN or DONE."""
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
            inflight[packet_id] = AWAITS_PUBCOMP  # behind those that were received before [MQTT-4.6.0-4]
        return DONE

    def pubcomp(self, packet_id: int) -> bool:
        """False: no QoS 2 message was released under this packet id."""
        inflight = self.inflight
        if inflight is None or inflight.get(packet_id) != AWAITS_PUBCOMP:
            return False
        del inflight[packet_id]
        self._send_waiting(inflight)
        return True

    def contradicts(self, kind: int, packet_id: int) -> bool:
        """A PUBACK, PUBREC or PUBCOMP isn't what the exchange under way with this packet id waits for."""
        state = 0 if self.inflight is None else self.inflight.get(packet_id, 0)
        if kind == frame.PUBREC:
            return state == AWAITS_PUBACK
        if kind == frame.PUBACK:
            return state in (AWAITS_PUBREC, AWAITS_PUBCOMP)
        return state in (AWAITS_PUBACK, AWAITS_PUBREC)
