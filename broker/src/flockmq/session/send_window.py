"""What is sent to one client at QoS ≥ 1: the packet ids that are in flight, and what waits [MQTT-4.1].

Pure: no descriptor, no clock but its sink's, no event loop. A session that ends with its connection keeps no content of
what is in flight; one that lasts does, to send it again under the same packet ids when its client is back.

What always holds: at most `window` packet ids are in use on the connection (none while the client is away); what
doesn't fit waits in order in `queue`, within its bounds in messages and bytes.

    QoS 1   sent → PUBACK → done
    QoS 2   sent → PUBREC → released → PUBCOMP → done
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import MQUEUE_MAX_BYTES
from flockmq.mqtt import encode, frame
from flockmq.mqtt.message import StoredMessage, as_duplicate, packet_of, with_packet_id
from flockmq.routing.sink import Sink
from flockmq.routing.subscriber import QUEUED, REFUSED, REPLACED, SENT, UNWANTED, Subscriber
from flockmq.session.client_session import DONE, UNKNOWN
from flockmq.session.limits import Limits

AWAITS_PUBACK: Final = 1
AWAITS_PUBREC: Final = 2
AWAITS_PUBCOMP: Final = 3


@mypyc_attr(acyclic=True)
class SendWindow(Subscriber):
    """Containers that are empty are None: an idle session is small. `expiry_s`: for how long the session outlives its
    connection; 0: it doesn't.
    """

    __slots__ = (
        "_next_id", "_unsent", "expiry_s", "inflight", "kept", "limits", "queue", "queue_bytes", "window",
    )  # fmt: skip

    def __init__(
        self, sink: Sink, client_id: bytes, limits: Limits, window: int, max_packet_bytes: int, expiry_s: int
    ) -> None:
        super().__init__(sink, client_id, max_packet_bytes)
        self.limits = limits
        self.window = window
        self.expiry_s = expiry_s
        self.inflight: dict[int, int] | None = None
        self.kept: dict[int, StoredMessage | bytes] | None = None
        self.queue: deque[StoredMessage | bytes] | None = None
        self.queue_bytes: int = 0
        self._next_id: int = 0
        self._unsent: dict[int, None] | None = None
        """Packet ids of what is to be sent again, the first of them last."""

    # What is published for the client.

    def offer(self, packet: bytes, packet_id: int, qos: int, stored: StoredMessage | None = None) -> int:
        """The publisher's packet id is taken over where it is free, so that the packet can leave byte by byte as it
        came. It waits while the window is full.
        """
        inflight = self.inflight
        if inflight is None:
            self.inflight = inflight = {}
        if self.queue or len(inflight) >= self.window:
            return self.enqueue(packet if stored is None else stored)
        if packet_id in inflight:
            packet_id = self._free_id(inflight)
            packet = with_packet_id(packet, packet_id)
        inflight[packet_id] = qos
        if self.expiry_s or stored is not None:
            self._keep(packet_id, packet, stored)
        self._put(packet)
        return SENT

    def offer_qos0(self, entry: StoredMessage | bytes) -> int:
        return self.enqueue(entry) if self.limits.mqueue_store_qos0 else UNWANTED

    def is_connected(self) -> bool:
        return self.window > 0

    def is_behind(self) -> bool:
        """The client is away, or comes back to what waited for it: where there is no room, the oldest of that goes."""
        return self.window == 0

    def is_congested(self) -> bool:
        return self.waiting() * 2 > self.limits.max_mqueue_len or self.waiting_bytes() * 2 > MQUEUE_MAX_BYTES

    def cut_off(self) -> bool:
        self.sink.overflow()
        return not self.is_connected()

    def waiting(self) -> int:
        """Messages for which the window has no place."""
        queue = self.queue
        return 0 if queue is None else len(queue)

    def waiting_bytes(self) -> int:
        return self.queue_bytes

    def takes(self, packet_bytes: int) -> bool:
        if not self.queue and (self.inflight is None or len(self.inflight) < self.window):
            return True
        return self.is_behind() or not self._is_full(packet_bytes)

    def has_room(self, packet_bytes: int) -> bool:
        queue = self.queue
        if not queue and (self.inflight is None or len(self.inflight) < self.window):
            return True
        return (
            self.waiting() * 4 < self.limits.max_mqueue_len
            and self.waiting_bytes() + packet_bytes <= MQUEUE_MAX_BYTES // 4
        )

    def enqueue(self, entry: StoredMessage | bytes) -> int:
        """Let a packet of any QoS wait: QUEUED, REPLACED or REFUSED.

        A client that is connected and finds no room is cut off. One that is away can't be told: it loses the oldest
        messages, QoS 0 first, as it would lose all of them if the session ended.
        """
        queue = self.queue
        if queue is None:
            self.queue = queue = deque()
        size = len(packet_of(entry))
        answer = QUEUED
        while self._is_full(size):
            if not self.is_behind() or not self._forget_oldest(queue):
                return REFUSED
            answer = REPLACED
        queue.append(entry)
        self.queue_bytes += size
        return answer

    def _is_full(self, packet_bytes: int) -> bool:
        """The queue has no room for one more packet."""
        return self.waiting() >= self.limits.max_mqueue_len or self.waiting_bytes() + packet_bytes > MQUEUE_MAX_BYTES

    def deliver(self, entry: StoredMessage | bytes) -> int:
        """A message that waited elsewhere: behind those that wait here, or to the client at once; as `enqueue`."""
        if self.inflight is None:
            self.inflight = {}
        answer = self.enqueue(entry)
        self._send_waiting(self.inflight)
        return answer

    def replace_queue(self, entries: list[StoredMessage | bytes]) -> None:
        """The same messages in other forms."""
        self.queue = deque(entries)
        self.queue_bytes = 0
        for entry in entries:
            self.queue_bytes += len(packet_of(entry))

    def take_out(self, gone: list[StoredMessage | bytes], stay: list[StoredMessage | bytes]) -> None:
        """Of what waits only this is to stay."""
        self.replace_queue(stay)

    def unacknowledged_shared(self) -> list[StoredMessage]:
        """The session is ending: its QoS 1 messages that weren't acknowledged, and of QoS 2 those that were never sent,
        which are for other members of shared subscriptions [MQTT-4.8.2-5].
        """
        left: list[StoredMessage] = []
        inflight = self.inflight
        if self.kept is not None and inflight is not None:
            for packet_id, entry in self.kept.items():
                if inflight.get(packet_id) == AWAITS_PUBACK and isinstance(entry, StoredMessage) and entry.share:
                    left.append(entry)
        for entry in self.queue or ():
            if isinstance(entry, StoredMessage) and entry.share:
                left.append(entry)
        return left

    def _forget_oldest(self, queue: deque[StoredMessage | bytes]) -> bool:
        """False: there is none."""
        if not queue:
            return False
        at = 0
        for position, entry in enumerate(queue):
            if packet_of(entry)[0] & 6 == 0:
                at = position
                break
        self.queue_bytes -= len(packet_of(queue[at]))
        del queue[at]
        return True

    def _free_id(self, inflight: dict[int, int]) -> int:
        packet_id = self._next_id
        while True:
            packet_id = packet_id % 65535 + 1
            if packet_id not in inflight:
                self._next_id = packet_id
                return packet_id

    def _keep(self, packet_id: int, packet: bytes, stored: StoredMessage | None) -> None:
        kept = self.kept
        if kept is None:
            self.kept = kept = {}
        kept[packet_id] = packet if stored is None else stored.under(packet)

    def _put(self, packet: bytes) -> None:
        aliases = self.aliases
        self.sink.put(packet if aliases is None else aliases.shorten(packet))

    def _send_waiting(self, inflight: dict[int, int]) -> None:
        """There is room in the window: first what a returned client must get again, then the queue."""
        unsent = self._unsent
        if unsent is not None:
            while unsent and len(inflight) - len(unsent) < self.window:
                packet_id = unsent.popitem()[0]
                if packet_id in inflight:
                    self._send_again(packet_id, inflight[packet_id])
            if not unsent:
                self._unsent = None
        queue = self.queue
        while queue and len(inflight) < self.window:
            entry = queue.popleft()
            self.queue_bytes -= len(packet_of(entry))
            packet = self._sendable(entry)
            if not packet:
                continue
            qos = packet[0] >> 1 & 3
            if qos == 0:
                self._put(packet)
                continue
            packet_id = self._free_id(inflight)
            packet = with_packet_id(packet, packet_id)
            inflight[packet_id] = qos
            if self.expiry_s or isinstance(entry, StoredMessage):
                self._keep(packet_id, packet, entry if isinstance(entry, StoredMessage) else None)
            self._put(packet)

    def _sendable(self, entry: StoredMessage | bytes) -> bytes:
        """What waited, as it is to be sent first; b"": it has expired, or the client takes no packet so large."""
        packet = entry.now(self.sink.now_s()) if isinstance(entry, StoredMessage) else entry
        if not packet or 0 < self.max_packet_bytes < len(packet):
            self.sink.unsendable(len(packet))
            return b""
        return packet

    def _send_qos0(self) -> None:
        """What finds no room in the window needs none: it goes before what comes from now on [MQTT-4.6.0-6]."""
        queue = self.queue
        if not queue:
            return
        waiting = [entry for entry in queue if packet_of(entry)[0] & 6 == 0]
        if waiting:
            self.replace_queue([entry for entry in queue if packet_of(entry)[0] & 6])
        for entry in waiting:
            packet = self._sendable(entry)
            if packet:
                self._put(packet)

    # What the client answers.

    def puback(self, packet_id: int) -> bool:
        """False: no QoS 1 message has this packet id."""
        inflight = self.inflight
        if inflight is None or inflight.get(packet_id) != AWAITS_PUBACK:
            return False
        del inflight[packet_id]
        if self.kept is not None:
            self.kept.pop(packet_id, None)
        if self.queue or self._unsent is not None:
            self._send_waiting(inflight)
        return True

    def pubrec(self, packet_id: int, refused: bool) -> int:
        """`refused`: with a reason code ≥ 0x80 it ends the exchange [MQTT-4.4.0-2]. UNKNOWN, DONE or LATER."""
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

    # Back on a connection.

    def send_again(self) -> None:
        """Send what was not acknowledged, in its order and under its packet ids [MQTT-4.4.0-1], then what waits."""
        inflight = self.inflight
        if inflight is None:
            return
        self._unsent = dict.fromkeys(reversed(inflight))
        self._send_waiting(inflight)
        self._send_qos0()

    def _send_again(self, packet_id: int, state: int) -> None:
        if state == AWAITS_PUBCOMP:
            self.sink.put(encode.pub_ack(frame.PUBREL, self.sink.protocol_version, packet_id))
            return
        entry = None if self.kept is None else self.kept.get(packet_id)
        if entry is None:
            return
        packet = entry.started(self.sink.now_s()) if isinstance(entry, StoredMessage) else entry
        if 0 < self.max_packet_bytes < len(packet):  # it can't be sent, and needs no answer [MQTT-3.1.2-25]
            assert self.inflight is not None
            assert self.kept is not None
            del self.inflight[packet_id], self.kept[packet_id]
            self.sink.unsendable(len(packet))
            return
        self._put(as_duplicate(packet))
