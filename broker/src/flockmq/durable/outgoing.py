"""Delivery of a durable session's messages: each is sent after its commit, in order, until its exchange is complete.

 publisher ──▶ owner: written to the store ── committed ──▶ sent ──▶ session proxy ──▶ client
               owner: deleted ◀────────────────────── reported ◀── session proxy ◀── acknowledged
                 └── committed ──▶ settled: the session proxy forgets the packet id

Invariants:
- A message is sent when its write is committed, in the order of sequence numbers. Its packet id must be free, also at
  the session proxy, and the window must have room. The packet id comes from the stored sequence number, so sending
  needs no extra write, and after a crash the message is sent with the same packet id.
- When a QoS 2 message has expired, nothing behind it is sent before its deletion is committed. Otherwise the next owner
  would assume that it was sent, and send it after later messages [MQTT-4.6.0-6].
- PUBREL is sent after the PUBREC is committed, in the order of the PUBRECs. The session proxy is told that an
  acknowledgement is settled after that is committed.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import GIVEN_UP_WAIT_MAX_S, MQUEUE_AHEAD_MAX
from flockmq.durable.commit_queue import CommitQueue
from flockmq.durable.message_queue import AWAITS_COMMIT, Entry, MessageQueue
from flockmq.durable.proxy_sink import ProxySink
from flockmq.durable.session_record import SessionRecord
from flockmq.durable.session_usage import SessionUsage
from flockmq.mqtt import encode, frame
from flockmq.mqtt.message import StoredMessage, as_duplicate, transcode, with_packet_id
from flockmq.mqtt.reason import Reason
from flockmq.routing.sink import LAGGING, Sink
from flockmq.routing.subscriber import QUEUED, REFUSED
from flockmq.session.local_session import AWAITS_PUBACK, AWAITS_PUBCOMP, AWAITS_PUBREC
from flockmq.session.remote_session import AGAIN, PUBACK, PUBCOMP, PUBREC, PUBREC_REFUSED, settled

_ENDS: Final = {PUBACK: AWAITS_PUBACK, PUBCOMP: AWAITS_PUBCOMP, PUBREC_REFUSED: AWAITS_PUBREC}
"""The state that each of them ends."""


@mypyc_attr(acyclic=True)
class Outgoing:
    """`sink`: the way to the client. `proxy`: the same object while the client is connected, else None. `committed`:
    all messages up to this sequence number are committed. `is_held`: the client reconnected, but nothing may be sent
    to it yet.
    """

    __slots__ = (
        "_commits", "_given_up_s", "_record", "_settling", "_usage", "committed", "is_held", "is_returning",
        "max_packet_bytes", "messages", "proxy", "sink",
    )  # fmt: skip

    def __init__(
        self,
        record: SessionRecord,
        commits: CommitQueue,
        messages: MessageQueue,
        usage: SessionUsage,
        sink: Sink,
        max_packet_bytes: int,
    ) -> None:
        self.messages = messages
        self.sink = sink
        self.proxy: ProxySink | None = sink if isinstance(sink, ProxySink) else None
        self.max_packet_bytes = max_packet_bytes
        self.committed: int = 0
        self.is_held: bool = False
        self.is_returning: bool = False
        """The client reconnected and still has so much to read that its publishers would be paused. It isn't
        disconnected for a full queue meanwhile; otherwise it could never catch up.
        """
        self._record = record
        self._commits = commits
        self._usage = usage
        self._given_up_s: float = 0.0
        """Since when we wait for the commit that deletes expired messages; 0.0: there are none."""
        self._settling: set[int] | None = None
        """Packet ids whose exchange is complete, but the session proxy doesn't know it yet. It would take a new message
        with such an id for a repeat.
        """

    # --- connections --------------------------------------------------------------------------------------------------

    def attach(self, proxy: ProxySink, max_packet_bytes: int) -> None:
        """A connection was attached. Nothing is sent before `send_again`."""
        self.sink = self.proxy = proxy
        self.max_packet_bytes = max_packet_bytes
        self.is_held = self.is_returning = True
        self.messages.unsent = None

    def leave(self, away: Sink) -> None:
        self.sink = away
        self.proxy = None
        self.max_packet_bytes = 0
        self.is_held = self.is_returning = False
        self.messages.window = 0
        self.messages.unsent = None

    def send_again(self) -> None:
        """Send all unacknowledged messages with their old packet ids, PUBRELs first [MQTT-4.4.0-1], then waiting
        messages.
        """
        inflight = self.messages.inflight
        self.is_held = False
        self.sink.put(AGAIN)
        # Messages with PUBREC have a place in the client's window already; messages behind them may never have had one.
        again = [packet_id for packet_id, state in inflight.items() if state == AWAITS_PUBCOMP]
        again += [i for i, state in inflight.items() if state not in (AWAITS_PUBCOMP, AWAITS_COMMIT)]
        self.messages.unsent = dict.fromkeys(reversed(again))
        self.send_waiting()
        self.send_qos0()
        self._usage.count()

    # --- what is published --------------------------------------------------------------------------------------------

    def is_behind(self) -> bool:
        """True if the client is offline, or still reads what waited for it. A full queue then drops its oldest
        messages.
        """
        return self.is_returning or self.messages.window == 0

    def takes(self, packet_bytes: int) -> bool:
        return self.messages.has_place() or self.is_behind() or not self._is_full(packet_bytes)

    def put(self, entry: StoredMessage) -> int:
        """Queue a message; it is sent after its commit. Returns QUEUED or REFUSED. An offline client can't be
        disconnected for a full queue, so it loses its oldest messages instead.
        """
        if self._record.has_ended:
            return QUEUED
        messages, size = self.messages, len(entry.packet)
        if self._usage.usage is not None and self.is_behind() and self._usage.is_over(size, is_away=True):
            dropped = messages.make_room(size)
            if not dropped:
                return REFUSED
            self.sink.dropped(dropped)
        while self._is_full(size):
            if not self.is_behind() or not messages.drop_oldest():
                self._usage.count()
                return REFUSED
            self.sink.dropped(1)
        messages.append(entry)
        self._usage.count()
        return QUEUED

    def _is_full(self, packet_bytes: int) -> bool:
        """Pausing publishers takes a moment, and commits come in groups. Until then a client that reads, or is expected
        back after a failover, may have up to MQUEUE_AHEAD_MAX messages more than its limit.
        """
        if self._usage.usage is not None and not self.is_behind() and self._usage.is_over(packet_bytes, is_away=False):
            return True
        is_slow = self._record.meta.left_ms != 0 or self.sink.flow == LAGGING
        messages = self.messages
        waiting = messages.waiting() - (0 if is_slow else MQUEUE_AHEAD_MAX)
        return messages.limits.is_full(waiting, messages.waiting_bytes() + packet_bytes)

    # --- what is sent -------------------------------------------------------------------------------------------------

    def send_waiting(self) -> None:
        if not self.is_held and self.proxy is not None:
            self._send_as_of(self.sink.now_s())

    def _send_as_of(self, now_s: float) -> None:
        """Send while the window has room: first the unacknowledged messages of a client that reconnected, then
        committed messages that hadn't expired at `now_s`.
        """
        messages = self.messages
        inflight = messages.inflight
        if self.is_returning and not messages.is_congested():
            self.is_returning = False
        unsent = messages.unsent
        if unsent is not None:
            while unsent and len(inflight) - len(unsent) < messages.window:
                packet_id = unsent.popitem()[0]
                self._send_again(packet_id, inflight[packet_id])
            if not unsent:
                messages.unsent = None
        queue = messages.queue
        while queue and len(inflight) < messages.window and self._given_up_s == 0.0:
            entry = queue[0]
            if isinstance(entry, Entry):
                packet_id = entry.packet_id()
                if entry.sequence > self.committed or packet_id in inflight or packet_id in (self._settling or ()):
                    return
                if entry.packet[0] & 4 and entry.has_expired(now_s):
                    self._give_up(now_s)
                    return
                messages.pop_first(queue)
                self._send_first(packet_id, entry, now_s)
            else:
                messages.pop_first(queue)
                self._send_now(entry)

    def _give_up(self, now_s: float) -> None:
        """Delete expired QoS 2 messages that would be sent next; continue when that is committed."""
        messages = self.messages
        assert messages.queue is not None
        room = messages.window - len(messages.inflight)
        for _ in range(messages.take_expired(messages.queue, now_s, room)):
            self.sink.unsendable(0)
        self._given_up_s = now_s
        self._record.writer.barrier(self._gave_up)

    def _gave_up(self, is_committed: bool) -> None:
        since_s, self._given_up_s = self._given_up_s, 0.0
        if not is_committed or self._record.has_ended:
            return
        if not self.is_held and self.proxy is not None:
            self._send_as_of(max(since_s, self.sink.now_s() - GIVEN_UP_WAIT_MAX_S))
        self._usage.count()

    def _send_first(self, packet_id: int, entry: Entry, now_s: float) -> None:
        packet = b"" if entry.has_expired(now_s) else entry.started(self.sink.now_s())
        packet = self._in_its_version(entry, packet)
        if not packet:
            self._record.delete_message(entry.sequence)
            return
        self.messages.inflight[packet_id] = packet[0] >> 1 & 3
        self.messages.keep(packet_id, entry)
        self._record.meta.started = entry.sequence
        self.sink.put(with_packet_id(packet, packet_id))

    def _send_again(self, packet_id: int, state: int) -> None:
        if state == AWAITS_PUBCOMP:
            self.sink.put(encode.pub_ack(frame.PUBREL, self.sink.protocol_version, packet_id))
            return
        entry = self.messages.entry(packet_id)
        packet = self._in_its_version(entry, entry.started(self.sink.now_s()))
        if packet:
            self.sink.put(as_duplicate(with_packet_id(packet, packet_id)))
        else:  # It can't be sent to this client; so its exchange is over [MQTT-3.1.2-25].
            self.messages.complete(packet_id)

    def send_qos0(self) -> None:
        for entry in self.messages.take_qos0():
            self._send_now(entry)

    def _send_now(self, entry: StoredMessage) -> None:
        packet = self._in_its_version(entry, entry.now(self.sink.now_s()))
        if packet:
            self.sink.put(packet)

    def _in_its_version(self, entry: StoredMessage, packet: bytes) -> bytes:
        """Convert to the client's MQTT version. Returns b"" if the packet is too large for the client or
        has expired.
        """
        version = self.sink.protocol_version
        if packet and entry.version != version:
            packet = transcode(packet, entry.version, version)
        if not packet or 0 < self.max_packet_bytes < len(packet):
            self.sink.unsendable(len(packet))
            return b""
        return packet

    def is_held_up(self) -> bool:
        """True if the client must wait because the next packet to it isn't committed yet."""
        if self.is_held or self._given_up_s:
            return True
        queue = self.messages.queue
        if not queue or self.messages.unsent is not None:
            return False
        entry = queue[0]
        if isinstance(entry, Entry) and (
            entry.sequence > self.committed or entry.packet_id() in (self._settling or ())
        ):
            return True
        return AWAITS_COMMIT in self.messages.inflight.values()

    # --- what the client answered, as its session proxy reports -------------------------------------------------------

    def ends(self, packet_id: int, kind: int) -> None:
        """PUBACK, PUBCOMP or a PUBREC that refuses the message ends the exchange. An unknown packet id is settled too:
        the session proxy repeats its report if the first answer was lost.
        """
        if self.messages.inflight.get(packet_id) == _ENDS[kind]:
            self.messages.complete(packet_id)
        if self._settling is None:
            self._settling = set()
        self._settling.add(packet_id)
        self._commits.acknowledge(kind, packet_id)
        self.send_waiting()

    def pubrec(self, packet_id: int) -> None:
        """PUBREL is sent after the commit; at once if the packet id is unknown, or its PUBREC was committed before."""
        state = self.messages.inflight.get(packet_id)
        if state == AWAITS_PUBREC:
            self.messages.received(packet_id)
            self._commits.acknowledge(PUBREC, packet_id)
        elif state != AWAITS_COMMIT:
            reason: int = Reason.SUCCESS if state == AWAITS_PUBCOMP else Reason.PACKET_IDENTIFIER_NOT_FOUND
            self._put_pubrel(packet_id, reason)

    def committed_one(self, kind: int, packet_id: int) -> None:
        """The commit that this acknowledgement waited for is done."""
        if kind in _ENDS and self._settling is not None:
            self._settling.discard(packet_id)
            if not self._settling:
                self._settling = None
        if kind != PUBREC:
            if self.proxy is not None:
                self.proxy.put(settled(kind, packet_id))
        elif self.messages.inflight.get(packet_id) == AWAITS_COMMIT:
            self.messages.inflight[packet_id] = AWAITS_PUBCOMP
            self._put_pubrel(packet_id, Reason.SUCCESS)

    def _put_pubrel(self, packet_id: int, reason: int) -> None:
        if self.proxy is not None and not self.is_held:
            self.sink.put(encode.pub_ack(frame.PUBREL, self.sink.protocol_version, packet_id, reason))
