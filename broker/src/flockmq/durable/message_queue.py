"""Messages to one client in order: those that wait and those in flight. No I/O.

Invariants: each QoS 1 or 2 message has a *sequence number* that its session never uses again, and its packet id is
computed from that. The message is stored until its exchange is complete or it is dropped for want of room. QoS 0
messages for an offline client wait only in memory: a crash loses them, as MQTT allows.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import NUMBERS_RESERVED, QUEUED_MESSAGE_BYTES
from flockmq.durable.commit_queue import CommitState
from flockmq.durable.session_fields import RELEASED, WAITS, message_parts, message_value
from flockmq.durable.session_record import SessionRecord
from flockmq.mqtt.message import StoredMessage
from flockmq.session.limits import Limits
from flockmq.session.local_session import AWAITS_PUBACK, AWAITS_PUBCOMP, AWAITS_PUBREC

PACKET_IDS: Final = 65_535

AWAITS_COMMIT: Final = 4
"""In addition to the states of `local_session`: PUBREC arrived, and PUBREL waits until that is committed."""


@mypyc_attr(acyclic=True)
class Entry(StoredMessage):
    """A message with its sequence number. `packet` contains the publisher's packet id; it is b"" after PUBREC."""

    __slots__ = ("sequence",)

    def __init__(self, packet: bytes, version: int, expires_s: float, share: bytes, sequence: int) -> None:
        super().__init__(packet, version, expires_s, share)
        self.sequence = sequence

    def packet_id(self) -> int:
        return (self.sequence - 1) % PACKET_IDS + 1

    def has_expired(self, now_s: float) -> bool:
        return 0.0 < self.expires_s <= now_s


@mypyc_attr(acyclic=True)
class MessageQueue:
    """`window`: the receive maximum of the client, 0 while it is offline. Most containers are None while they are
    empty, to keep idle sessions small.
    """

    __slots__ = (
        "_commit_state", "_queued_qos0", "_record", "inflight", "kept", "kept_bytes", "last", "limits", "queue",
        "queue_bytes", "unsent", "window",
    )  # fmt: skip

    def __init__(self, record: SessionRecord, commit_state: CommitState, limits: Limits, window: int) -> None:
        self.limits = limits
        self.window = window
        self.queue: deque[StoredMessage] | None = None
        self.queue_bytes: int = 0
        self.inflight: dict[int, int] = {}
        """Packet id → state of messages whose exchange isn't complete, in the order of their sequence numbers."""
        self.kept: dict[int, Entry] | None = None
        """Packet id → message."""
        self.kept_bytes: int = 0
        self.unsent: dict[int, None] | None = None
        """Packet ids that must be sent again after a reconnect, in reverse order."""
        self.last: int = 0
        """The last sequence number that was used."""
        self._record = record
        self._commit_state = commit_state
        self._queued_qos0: int = 0

    def clear(self) -> None:
        self.inflight.clear()
        self.kept = self.queue = self.unsent = None
        self.queue_bytes = self.kept_bytes = self._queued_qos0 = 0

    # --- how much there is --------------------------------------------------------------------------------------------

    def waiting(self) -> int:
        """Number of messages for which the window has no place. After a crash of the owner, messages may count as in
        flight that were never sent. Those beyond the window count as waiting.
        """
        queue = self.queue
        return (0 if queue is None else len(queue)) + self._beyond_window()

    def waiting_bytes(self) -> int:
        return self.queue_bytes + (self.kept_bytes if self._beyond_window() else 0)

    def _beyond_window(self) -> int:
        return max(0, len(self.inflight) - max(self.window, self.limits.max_inflight))

    def stored_bytes(self) -> int:
        """What the messages use of the user's quota."""
        waiting = len(self.queue or ()) + len(self.inflight)
        return self.queue_bytes + self.kept_bytes + QUEUED_MESSAGE_BYTES * waiting

    def has_place(self) -> bool:
        """True if one more message could be sent at once."""
        return not self.queue and len(self.inflight) < self.window

    def has_room(self, packet_bytes: int) -> bool:
        """True if one more message would leave most of the queue free for published messages."""
        return self.has_place() or self.limits.is_mostly_free(self.waiting(), self.waiting_bytes() + packet_bytes)

    def is_congested(self) -> bool:
        return self.limits.is_congested(self.waiting(), self.waiting_bytes())

    # --- what waits ---------------------------------------------------------------------------------------------------

    def append(self, entry: StoredMessage) -> None:
        """Append behind all waiting messages. QoS 1 and 2 messages are stored."""
        queue = self.queue
        if queue is None:
            self.queue = queue = deque()
        packet = entry.packet
        self.queue_bytes += len(packet)
        if packet[0] & 6 == 0:
            self._queued_qos0 += 1
            queue.append(entry)
            return
        self.last = sequence = self.last + 1
        meta = self._record.meta
        if sequence > meta.sequences:
            meta.sequences = sequence + NUMBERS_RESERVED
            self._record.write_meta()
        stored = Entry(packet, entry.version, entry.expires_s, entry.share, sequence)
        queue.append(stored)
        self.write(stored)

    def pop_first(self, queue: deque[StoredMessage]) -> StoredMessage:
        entry = queue.popleft()
        self.queue_bytes -= len(entry.packet)
        if not isinstance(entry, Entry):
            self._queued_qos0 -= 1
        return entry

    def take_expired(self, queue: deque[StoredMessage], now_s: float, room: int) -> int:
        """Remove expired messages until `room` messages that haven't expired were seen. Returns how many
        were removed.
        """
        stay: list[StoredMessage] = []
        taken = 0
        while queue and len(stay) < room:
            entry = queue.popleft()
            if not isinstance(entry, Entry) or not entry.has_expired(now_s):
                stay.append(entry)
                continue
            self.queue_bytes -= len(entry.packet)
            self._record.delete_message(entry.sequence)
            taken += 1
        queue.extendleft(reversed(stay))
        return taken

    def take_qos0(self) -> list[StoredMessage]:
        """QoS 0 messages need no place in the window. They must be sent before all later messages [MQTT-4.6.0-6]."""
        if not self._queued_qos0 or not self.queue:
            return []
        self._queued_qos0 = 0
        waiting = [entry for entry in self.queue if entry.packet[0] & 6 == 0]
        self._replace([entry for entry in self.queue if entry.packet[0] & 6])
        return waiting

    def take_out(self, gone: list[StoredMessage | bytes], stay: list[StoredMessage | bytes]) -> None:
        """Remove `gone` from the queue. Only `stay` remains."""
        self._replace([entry for entry in stay if isinstance(entry, StoredMessage)])
        for entry in gone:
            if isinstance(entry, Entry):
                self._record.delete_message(entry.sequence)
            else:
                self._queued_qos0 -= 1

    def _replace(self, entries: list[StoredMessage]) -> None:
        self.queue = deque(entries)
        self.queue_bytes = 0
        for entry in entries:
            self.queue_bytes += len(entry.packet)

    def make_room(self, packet_bytes: int) -> int:
        """Drop the oldest waiting messages until as many bytes are free as `packet_bytes`, so the user's other sessions
        keep theirs. Returns how many; 0: too little waits here.
        """
        if self.queue_bytes < packet_bytes or not self.queue:
            return 0
        wanted = self.queue_bytes - packet_bytes
        dropped = 0
        while self.queue_bytes > wanted and self.drop_oldest():
            dropped += 1
        return dropped

    def drop_beyond_limit(self) -> int:
        """The client went offline: drop messages beyond the limit for offline clients. Returns how many."""
        dropped = 0
        while self.waiting() > self.limits.max_mqueue_len and self.drop_oldest():
            dropped += 1
        return dropped

    def drop_oldest(self) -> bool:
        """Drop the oldest waiting message, QoS 0 first. Returns False if there is none."""
        queue = self.queue
        if not self._queued_qos0 and self._beyond_window() and self._drop_in_flight():
            return True
        if not queue:
            return False
        at = 0
        if self._queued_qos0:
            self._queued_qos0 -= 1
            for position, entry in enumerate(queue):
                if entry.packet[0] & 6 == 0:
                    at = position
                    break
        dropped = queue[at]
        del queue[at]
        self.queue_bytes -= len(dropped.packet)
        if isinstance(dropped, Entry):
            self._record.delete_message(dropped.sequence)
        return True

    def _drop_in_flight(self) -> bool:
        """Drop the newest message in flight that wasn't sent on this connection. Returns False if all were sent."""
        for packet_id in reversed(self.kept or {}):
            is_sent = self.unsent is not None and packet_id not in self.unsent
            if not is_sent and self.inflight[packet_id] in (AWAITS_PUBACK, AWAITS_PUBREC):
                self.complete(packet_id)
                return True
        return False

    def unacknowledged_shared(self) -> list[StoredMessage]:
        """Messages that other members of shared subscriptions should get: QoS 1 messages without PUBACK, and messages
        that were never sent [MQTT-4.8.2-5].
        """
        left: list[StoredMessage] = []
        for packet_id, entry in (self.kept or {}).items():
            if entry.share and self.inflight.get(packet_id) == AWAITS_PUBACK:
                left.append(entry)
        left += [waiting for waiting in self.queue or () if waiting.share]
        return left

    # --- what is in flight --------------------------------------------------------------------------------------------

    def keep(self, packet_id: int, entry: Entry) -> None:
        kept = self.kept
        if kept is None:
            self.kept = kept = {}
        kept[packet_id] = entry
        self.kept_bytes += len(entry.packet)

    def entry(self, packet_id: int) -> Entry:
        assert self.kept is not None
        return self.kept[packet_id]

    def complete(self, packet_id: int) -> None:
        """The exchange is complete."""
        assert self.kept is not None
        entry = self.kept.pop(packet_id)
        self._record.delete_message(entry.sequence)
        self.kept_bytes -= len(entry.packet)
        del self.inflight[packet_id]
        self.need_not_send(packet_id)

    def received(self, packet_id: int) -> None:
        """PUBREC arrived for a QoS 2 message. Its packet is no longer needed."""
        entry = self.entry(packet_id)
        self.kept_bytes -= len(entry.packet)
        entry.packet = b""
        self.need_not_send(packet_id)
        del self.inflight[packet_id]
        # Moved to the end: PUBRELs are sent in the order of the PUBRECs [MQTT-4.6.0-4].
        self.inflight[packet_id] = AWAITS_COMMIT
        self.write(entry)

    def need_not_send(self, packet_id: int) -> None:
        """The client already answered, on a connection to a former owner."""
        if self.unsent is not None:
            self.unsent.pop(packet_id, None)

    # --- what the store has -------------------------------------------------------------------------------------------

    def write(self, entry: Entry) -> None:
        packet = entry.packet
        state = WAITS if packet else RELEASED
        qos = packet[0] >> 1 & 3 if packet else 2
        expires_ms = 0 if entry.expires_s == 0.0 else self._commit_state.wall_ms(entry.expires_s)
        value = message_value(state, qos, entry.version, expires_ms, entry.share, packet)
        self._record.put_message(entry.sequence, value)

    def write_again(self) -> None:
        for kept in (self.kept or {}).values():
            self.write(kept)
        for entry in self.queue or ():
            if isinstance(entry, Entry):
                self.write(entry)

    def restore(self, messages: list[tuple[int, bytes]], now_s: float) -> None:
        """Restore messages by sequence number. Messages that may have been sent before are sent again with DUP."""
        messages.sort()
        meta = self._record.meta
        started = meta.started if meta.left_ms else meta.sequences
        for sequence, value in messages:
            self._restore_one(sequence, value, sequence <= started, now_s)
        self.last = meta.sequences

    def _restore_one(self, sequence: int, value: bytes, may_be_sent: bool, now_s: float) -> None:
        state, qos, version, expires_ms, share, packet = message_parts(value)
        expires_s = 0.0 if expires_ms == 0 else self._commit_state.expires_s(expires_ms)
        entry = Entry(packet, version, expires_s, share, sequence)
        packet_id = entry.packet_id()
        if state == RELEASED:
            self.inflight[packet_id] = AWAITS_PUBCOMP
            self.keep(packet_id, entry)
        elif may_be_sent and not self.queue and packet_id not in self.inflight:
            if qos == 1 and not entry.now(now_s):
                self._record.delete_message(sequence)  # It expired, so it need not be sent again.
                return
            self._record.meta.started = sequence
            self.inflight[packet_id] = qos
            self.keep(packet_id, entry)
        else:
            if self.queue is None:
                self.queue = deque()
            self.queue.append(entry)
            self.queue_bytes += len(packet)
