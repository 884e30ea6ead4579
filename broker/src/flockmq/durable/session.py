"""A session that outlives its connection and the crash of its home, where it runs; a connection has a `remote_session`.

    publisher ──▶ home: put in the journal ── durable ──▶ sent ──▶ front ──▶ client
                  home: deleted ◀──────────────── reported ◀────── front ◀── acknowledged
                        └── durable ──▶ settled: the front forgets the packet id

What always holds:
- A message of QoS ≥ 1 has a *sequence* that its session never uses again, and its packet id comes from that. So nothing
  must be written before it is sent, and after a crash it is sent under the packet id that the client may know it by.
- It is sent when its put is durable, in the order of the sequences, when its packet id is free, for the front too, and
  the window has room.
- To a client that came back nothing is sent before it is durable that it is there: the next home takes nothing of that
  for unsent.
- Behind a QoS 2 message that expired nothing is sent before it is durable that it is gone: the next home would take it
  for sent, and send it behind what came after it [MQTT-4.6.0-6].
- PUBREL is sent when it is durable that PUBREC came, in the order of the PUBRECs. What a client answered is settled,
  and its own PUBREL answered with PUBCOMP, when that is durable.

QoS 0 messages that wait for a client that is away wait in memory: a crash loses them, as the specification allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import (
    GIVEN_UP_WAIT_MAX_S,
    MQUEUE_AHEAD_MAX,
    MQUEUE_MAX_BYTES,
    NUMBERS_RESERVED,
    QUEUED_MESSAGE_BYTES,
)
from flockmq.durable.commit_queue import JournaledSession, Ledger
from flockmq.durable.journal import Journal
from flockmq.durable.proxy_sink import ProxySink
from flockmq.durable.session_record import (
    ASKED,
    GIVEN,
    JUDGED,
    MESSAGE,
    META,
    RECEIVED,
    RELEASED,
    SUBSCRIPTION,
    UNSUBSCRIBED,
    USER,
    WAITS,
    WARRANT,
    ZONE,
    Meta,
    asked_field,
    decode_meta,
    given_field,
    message_parts,
    message_value,
    received_field,
    received_of,
    sequence_field,
    sequence_of,
    unsubscribed_field,
)
from flockmq.mqtt import encode, frame
from flockmq.mqtt.message import StoredMessage, Will, as_duplicate, packet_of, transcode, with_packet_id
from flockmq.mqtt.reason import Reason
from flockmq.routing.router import Router
from flockmq.routing.sink import AWAY, FLOWING, LAGGING, AwaySink, Sink
from flockmq.routing.subscriber import QUEUED, REFUSED, REPLACED
from flockmq.session.client_session import DONE, LATER, UNKNOWN
from flockmq.session.limits import DEFAULT, Limits
from flockmq.session.local_session import LocalSession
from flockmq.session.send_window import AWAITS_PUBACK, AWAITS_PUBCOMP, AWAITS_PUBREC
from flockmq.session.settlement import (
    AGAIN,
    DROPPED,
    PAIR_BYTES,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREC_REFUSED,
    PUBREL,
)

PACKET_IDS: Final = 65_535

_ENDS: Final = (PUBACK, PUBCOMP, PUBREC_REFUSED)
_AWAITS_RELEASE: Final = 4
"""PUBREC came; PUBREL is sent when that is durable."""
_RETURNED: Final = 0x100
"""Beside the kinds of `settlement`: what it waits for is that the client is there."""


@mypyc_attr(acyclic=True)
class Entry(StoredMessage):
    """A message with its sequence. `packet` has the publisher's packet id; b"": PUBREC came."""

    __slots__ = ("sequence",)

    def __init__(self, packet: bytes, version: int, expires_s: float, share: bytes, sequence: int) -> None:
        super().__init__(packet, version, expires_s, share)
        self.sequence = sequence

    def packet_id(self) -> int:
        return (self.sequence - 1) % PACKET_IDS + 1

    def has_expired(self, now_s: float) -> bool:
        return 0.0 < self.expires_s <= now_s


@mypyc_attr(acyclic=True)
class DurableSession(JournaledSession):
    """Made by a CONNECT, or by `restored`. All calls come from its home, in turns; `ledger.seal` ends each of them.

    `inflight` and `kept` have what was sent and isn't complete, in the order of the sequences; `queue` what waits.
    """

    __slots__ = (
        "_given_up_s", "_held", "_is_returning", "_kept_bytes", "_queued_qos0", "_sends_again_later", "_settling",
        "_unwritten_returns",
    )  # fmt: skip

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        meta: Meta,
        sink: Sink,
        client_id: bytes,
        limits: Limits,
        window: int,
        max_packet_bytes: int = 0,
        user: bytes | None = None,
    ) -> None:
        super().__init__(journal, ledger, meta, sink, client_id, limits, window, max_packet_bytes, user)
        self.inflight = {}
        self._queued_qos0: int = 0
        self._kept_bytes: int = 0
        self._given_up_s: float = 0.0
        """Since when it is awaited that messages that expired are gone; 0.0: there are none."""
        self._held: bool = False
        self._unwritten_returns: int = 0
        """How often the client came back without its being durable yet."""
        self._sends_again_later: bool = False
        """When all of that is."""
        self._settling: set[int] | None = None
        """Packet ids whose exchanges are over, which the front hasn't heard: it would take their next for a repeat."""
        self._is_returning: bool = False
        """A client that came back has as much to read yet as would have its publishers paused: to cut it off for that
        would be to never let it in."""

    # Away and back.

    def resume(self, fresh: LocalSession) -> None:
        """Hold back what is sent until `send_again`: CONNACK comes first."""
        assert isinstance(fresh, DurableSession)
        meta = self.meta
        if meta.will_source != fresh.meta.will_source:
            self.forget_unsubscribed()
            self.renew_sender(fresh.meta.will_source)
        meta.will = fresh.meta.will
        meta.will_source = fresh.meta.will_source
        self.expiry_s = fresh.expiry_s
        if fresh.user is not None:
            self.becomes(fresh.user, fresh.usage)
        self.count()
        self.attach(fresh.sink, fresh.limits, fresh.window, fresh.max_packet_bytes)

    def attach(self, sink: Sink, limits: Limits, window: int, max_packet_bytes: int) -> None:
        super().attach(sink, limits, window, max_packet_bytes)
        assert isinstance(sink, ProxySink)
        self._front = sink
        self._front.flow = AWAY
        self._held = self._is_returning = True
        self._sends_again_later = self.must_be_judged = False
        self._unsent = None
        was_away, self.meta.left_ms = self.meta.left_ms != 0, 0
        self._write_meta()
        if was_away:
            self._unwritten_returns += 1
            self._when_durable(_RETURNED, 0)

    def send_again(self) -> None:
        """What was not acknowledged under its packet ids, PUBRELs first [MQTT-4.4.0-1], then what waits. It may be
        called again on a connection, where something may have been lost on its way to the front.
        """
        inflight = self.inflight
        if inflight is None or self._front is None or self.must_be_judged:
            return
        self._is_there(self._front)
        self._sends_again_later = self._unwritten_returns > 0
        if self._sends_again_later:
            self._send_qos0()
            return
        self._held = False
        self.sink.put(AGAIN)
        # what was received has a place in the client's window, where what comes behind it may never have been
        again = [packet_id for packet_id, state in inflight.items() if state == AWAITS_PUBCOMP]
        again += [i for i, state in inflight.items() if state not in (AWAITS_PUBCOMP, _AWAITS_RELEASE)]
        self._unsent = dict.fromkeys(reversed(again))
        self._send_waiting(inflight)
        self._send_qos0()
        self.count()

    def _is_there(self, front: ProxySink) -> None:
        """From now on what comes at QoS 0 goes to it, behind what waited."""
        if front.flow == AWAY:
            front.flow = FLOWING
            front.router.reached_anew(self)

    def _send_qos0(self) -> None:
        if self._queued_qos0:
            self._queued_qos0 = 0
            super()._send_qos0()

    def leave(self, away: Sink, will: Will | None = None) -> None:
        now_s = self.sink.now_s()
        super().leave(away, will)
        self._front = None
        assert isinstance(away, AwaySink)
        away.host.counters.dropped_queue_full += self._forget_what_is_ahead()
        self._held = self._is_returning = self._sends_again_later = self.must_be_judged = False
        self.meta.will = will
        self.meta.left_ms = max(1, self.ledger.wall_ms(now_s))
        self._write_meta()
        self.count()

    # Messages for the client.

    def is_behind(self) -> bool:
        return self._is_returning or super().is_behind()

    def takes_at_once(self) -> bool:
        """The client is there, and its window has room for one more: nothing waits but to be durable."""
        inflight, queue = self.inflight, self.queue
        used = (0 if inflight is None else len(inflight)) + (0 if queue is None else len(queue))
        return self._front is not None and used < self.window

    def offer(self, packet: bytes, packet_id: int, qos: int, stored: StoredMessage | None = None) -> int:
        """Put it in the journal; it is sent when it is durable: QUEUED, REPLACED or REFUSED."""
        return self.enqueue(packet if stored is None else stored)

    def enqueue(self, entry: StoredMessage | bytes) -> int:
        if self._ended:
            return QUEUED
        packet = packet_of(entry)
        qos = packet[0] >> 1 & 3
        made_room = False
        if self.usage is not None and self.is_behind() and self._is_over_quota(len(packet)):
            if not self._make_room(len(packet)):
                return REFUSED
            made_room = True
        if not isinstance(entry, StoredMessage):
            entry = StoredMessage(packet, self.sink.protocol_version, 0.0)
        if qos == 0:
            answer = super().enqueue(entry)
            if answer != REFUSED:
                self._queued_qos0 += 1
            self.count()
            return REPLACED if made_room and answer == QUEUED else answer
        sequence = self._last + 1
        durable = Entry(packet, entry.version, entry.expires_s, entry.share, sequence)
        answer = super().enqueue(durable)
        if answer == REFUSED:
            return REFUSED
        self.count()
        if made_room:
            answer = REPLACED
        if sequence > self.meta.sequences:
            self.meta.sequences = sequence + NUMBERS_RESERVED
            self._write_meta()
        self._last = sequence
        self._write(durable)
        self._unseal()
        return answer

    def stored_bytes(self) -> int:
        waiting = len(self.queue or ()) + len(self.inflight or ())
        return super().stored_bytes() + self.queue_bytes + self._kept_bytes + QUEUED_MESSAGE_BYTES * waiting

    def _is_over_quota(self, packet_bytes: int) -> bool:
        """All that waits for its user's sessions, with one packet more."""
        if self.usage is None:
            return False
        self.count()
        return not self.usage.may_queue(packet_bytes + QUEUED_MESSAGE_BYTES, is_away=self.is_behind())

    def _make_room(self, packet_bytes: int) -> bool:
        """As much of what waits here goes, the oldest first, as comes: the user's other sessions keep what they have.
        False: so much doesn't wait here."""
        if self.queue_bytes < packet_bytes or not self.queue:
            return False
        wanted = self.queue_bytes - packet_bytes
        while self.queue_bytes > wanted:
            if not self._forget_oldest(self.queue):
                return False
        return True

    def waiting(self) -> int:
        """With what a crash of the home made in flight, sent or not: so much of it is beyond the window."""
        return super().waiting() + self._beyond_window()

    def waiting_bytes(self) -> int:
        return self.queue_bytes + (self._kept_bytes if self._beyond_window() else 0)

    def _is_full(self, packet_bytes: int) -> bool:
        """That nodes pause who publishes to it takes its time, and all that waited for the store comes at once: a
        client that reads, or is expected back since the last home, loses nothing for that.
        """
        if self.usage is not None and not self.is_behind() and self._is_over_quota(packet_bytes):
            return True
        if self.meta.left_ms or self.sink.flow == LAGGING:
            return super()._is_full(packet_bytes)
        return (
            self.waiting() >= self.limits.max_mqueue_len + MQUEUE_AHEAD_MAX
            or self.waiting_bytes() + packet_bytes > MQUEUE_MAX_BYTES
        )

    def _forget_what_is_ahead(self) -> int:
        """Its client went: how many are beyond what waits for one that is away."""
        forgotten = 0
        queue: deque[StoredMessage | bytes] = deque() if self.queue is None else self.queue
        while self.waiting() > self.limits.max_mqueue_len and self._forget_oldest(queue):
            forgotten += 1
        return forgotten

    def _beyond_window(self) -> int:
        inflight = self.inflight
        return 0 if inflight is None else max(0, len(inflight) - max(self.window, self.limits.max_inflight))

    def _forget_oldest(self, queue: deque[StoredMessage | bytes]) -> bool:
        if not self._queued_qos0 and self._beyond_window() and self._forget_in_flight():
            return True
        if not queue:
            return False
        at = 0
        if self._queued_qos0:
            self._queued_qos0 -= 1
            for position, entry in enumerate(queue):
                if packet_of(entry)[0] & 6 == 0:
                    at = position
                    break
        dropped = queue[at]
        del queue[at]
        self.queue_bytes -= len(packet_of(dropped))
        if isinstance(dropped, Entry):
            self.journal.delete(self.client_id, sequence_field(dropped.sequence))
        return True

    def take_out(self, gone: list[StoredMessage | bytes], stay: list[StoredMessage | bytes]) -> None:
        super().take_out(gone, stay)
        for entry in gone:
            if isinstance(entry, Entry):
                self.journal.delete(self.client_id, sequence_field(entry.sequence))
            else:
                self._queued_qos0 -= 1
        self.count()

    def _forget_in_flight(self) -> bool:
        """The last of it, which is the least likely to have been sent. False: all of it was, on this connection."""
        inflight = self.inflight
        assert inflight is not None
        for packet_id in reversed(self.kept or {}):
            is_sent = self._unsent is not None and packet_id not in self._unsent
            if not is_sent and inflight[packet_id] in (AWAITS_PUBACK, AWAITS_PUBREC):
                self._complete(inflight, packet_id)
                return True
        return False

    def _send_waiting(self, inflight: dict[int, int]) -> None:
        self._send_as_of(self.sink.now_s(), inflight)

    def _send_as_of(self, now_s: float, inflight: dict[int, int]) -> None:
        """There is room in the window: first what a returned client must get again, then what is durable, unless it
        had expired by then."""
        if self._held or self._front is None:
            return
        if self._is_returning and not self.is_congested():
            self._is_returning = False
        unsent = self._unsent
        if unsent is not None:
            while unsent and len(inflight) - len(unsent) < self.window:
                packet_id = unsent.popitem()[0]
                self._send_again(packet_id, inflight[packet_id])
            if not unsent:
                self._unsent = None
        queue = self.queue
        while queue and len(inflight) < self.window and self._given_up_s == 0.0:
            entry = queue[0]
            if isinstance(entry, Entry):
                packet_id = entry.packet_id()
                if entry.sequence > self._durable or packet_id in inflight or self._is_settling(packet_id):
                    return
                if entry.packet[0] & 4 and entry.has_expired(now_s):
                    self._give_up(queue, now_s, self.window - len(inflight))
                    return
                queue.popleft()
                self.queue_bytes -= len(entry.packet)
                self._send_first(inflight, packet_id, entry, now_s)
            else:
                assert isinstance(entry, StoredMessage)
                queue.popleft()
                self.queue_bytes -= len(entry.packet)
                self._queued_qos0 -= 1
                packet = self._sendable(entry)
                if packet:
                    self.sink.put(packet)

    def _give_up(self, queue: deque[StoredMessage | bytes], now_s: float, room: int) -> None:
        """What expired of that which would be sent next, and go on when that is durable."""
        stay: list[StoredMessage | bytes] = []
        while queue and len(stay) < room:
            entry = queue.popleft()
            if not isinstance(entry, Entry) or not entry.has_expired(now_s):
                stay.append(entry)
                continue
            self.queue_bytes -= len(entry.packet)
            self.sink.unsendable(0)
            self.journal.delete(self.client_id, sequence_field(entry.sequence))
        queue.extendleft(reversed(stay))
        self._given_up_s = now_s
        self.journal.barrier(self._gave_up)

    def _gave_up(self, is_durable: bool) -> None:
        since_s, self._given_up_s = self._given_up_s, 0.0
        if not is_durable or self._ended or self.inflight is None:
            return
        self._send_as_of(max(since_s, self.sink.now_s() - GIVEN_UP_WAIT_MAX_S), self.inflight)
        self.count()

    def _send_first(self, inflight: dict[int, int], packet_id: int, entry: Entry, now_s: float) -> None:
        packet = b"" if entry.has_expired(now_s) else entry.started(self.sink.now_s())
        packet = self._in_its_version(entry, packet)
        if not packet:
            self.journal.delete(self.client_id, sequence_field(entry.sequence))
            return
        inflight[packet_id] = packet[0] >> 1 & 3
        self._keep_entry(packet_id, entry)
        self.meta.started = entry.sequence
        self.sink.put(with_packet_id(packet, packet_id))

    def _send_again(self, packet_id: int, state: int) -> None:
        if state == AWAITS_PUBCOMP:
            self.sink.put(encode.pub_ack(frame.PUBREL, self.sink.protocol_version, packet_id))
            return
        assert self.inflight is not None
        entry = self._entry(packet_id)
        packet = self._in_its_version(entry, entry.started(self.sink.now_s()))
        if packet:
            self.sink.put(as_duplicate(with_packet_id(packet, packet_id)))
        else:  # it needs no answer [MQTT-3.1.2-25]
            self._complete(self.inflight, packet_id)

    def _sendable(self, entry: StoredMessage | bytes) -> bytes:
        assert isinstance(entry, StoredMessage)
        return self._in_its_version(entry, entry.now(self.sink.now_s()))

    def _in_its_version(self, entry: StoredMessage, packet: bytes) -> bytes:
        """In the version that the client came back with; b"": it takes no packet so large, or it has expired."""
        version = self.sink.protocol_version
        if packet and entry.version != version:
            packet = transcode(packet, entry.version, version)
        if not packet or 0 < self.max_packet_bytes < len(packet):
            self.sink.unsendable(len(packet))
            return b""
        return packet

    def _keep_entry(self, packet_id: int, entry: Entry) -> None:
        kept = self.kept
        if kept is None:
            self.kept = kept = {}
        kept[packet_id] = entry
        self._kept_bytes += len(entry.packet)

    def _entry(self, packet_id: int) -> Entry:
        assert self.kept is not None
        entry = self.kept[packet_id]
        assert isinstance(entry, Entry)
        return entry

    def _complete(self, inflight: dict[int, int], packet_id: int) -> None:
        """The exchange is over."""
        entry = self._entry(packet_id)
        self.journal.delete(self.client_id, sequence_field(entry.sequence))
        self._kept_bytes -= len(entry.packet)
        del inflight[packet_id]
        assert self.kept is not None
        del self.kept[packet_id]
        self._need_not_send(packet_id)

    def _need_not_send(self, packet_id: int) -> None:
        """The client answered already, on a connection that another home had."""
        if self._unsent is not None:
            self._unsent.pop(packet_id, None)

    def _is_settling(self, packet_id: int) -> bool:
        return self._settling is not None and packet_id in self._settling

    # What the client answered, as its front reports.

    def reported(self, pairs: bytes) -> None:
        """A run of `settlement` pairs. Of a front whose place another one took nothing is to be heard."""
        for at in range(0, len(pairs) - 2, PAIR_BYTES):
            kind = pairs[at]
            packet_id = pairs[at + 1] << 8 | pairs[at + 2]
            if kind == PUBACK:
                self.puback(packet_id)
            elif kind == PUBREC:
                self.pubrec(packet_id, False)
            elif kind == PUBCOMP:
                self.pubcomp(packet_id)
            elif kind == PUBREL:
                self.pubrel(packet_id)
            elif kind == PUBREC_REFUSED:
                self.pubrec(packet_id, True)
            elif kind == DROPPED:
                self.forget(packet_id)
        if self._front is not None and pairs:
            self._front.progressed(self.is_congested())

    def puback(self, packet_id: int) -> bool:
        """Unknown ones are settled all the same: the answer to an earlier report was lost."""
        return self._ends(packet_id, AWAITS_PUBACK, PUBACK)

    def pubcomp(self, packet_id: int) -> bool:
        return self._ends(packet_id, AWAITS_PUBCOMP, PUBCOMP)

    def _ends(self, packet_id: int, state: int, kind: int) -> bool:
        inflight = self.inflight
        if inflight is None:
            return False
        known = inflight.get(packet_id) == state
        if known:
            self._complete(inflight, packet_id)
        if self._settling is None:
            self._settling = set()
        self._settling.add(packet_id)
        self._when_durable(kind, packet_id)
        self._send_waiting(inflight)
        return known

    def pubrec(self, packet_id: int, refused: bool) -> int:
        """PUBREL follows when it is durable; at once where nothing is known, or was known before."""
        if refused:
            return LATER if self._ends(packet_id, AWAITS_PUBREC, PUBREC_REFUSED) else UNKNOWN
        inflight = self.inflight
        if inflight is None:
            return UNKNOWN
        state = inflight.get(packet_id)
        if state == AWAITS_PUBREC:
            entry = self._entry(packet_id)
            self._kept_bytes -= len(entry.packet)
            entry.packet = b""
            self._need_not_send(packet_id)
            del inflight[packet_id]
            inflight[packet_id] = _AWAITS_RELEASE  # behind those that were received before [MQTT-4.6.0-4]
            self._write(entry)
            self._when_durable(PUBREC, packet_id)
            return LATER
        if state == _AWAITS_RELEASE:
            return LATER
        reason: int = Reason.SUCCESS if state == AWAITS_PUBCOMP else Reason.PACKET_IDENTIFIER_NOT_FOUND
        self._put_pubrel(packet_id, reason)
        return DONE if state == AWAITS_PUBCOMP else UNKNOWN

    def _say(self, kind: int, packet_id: int) -> None:
        if kind == _RETURNED:
            self._unwritten_returns -= 1
            if self._sends_again_later:
                self.send_again()
            return
        if kind in _ENDS and self._settling is not None:
            self._settling.discard(packet_id)
            if not self._settling:
                self._settling = None
        if kind != PUBREC:
            super()._say(kind, packet_id)
        elif self.inflight is not None and self.inflight.get(packet_id) == _AWAITS_RELEASE:
            self.inflight[packet_id] = AWAITS_PUBCOMP
            self._put_pubrel(packet_id, Reason.SUCCESS)

    def _put_pubrel(self, packet_id: int, reason: int) -> None:
        if self._front is not None and not self._held:
            self.sink.put(encode.pub_ack(frame.PUBREL, self.sink.protocol_version, packet_id, reason))

    def is_held_up(self) -> bool:
        """What is to be said next isn't durable: the client can't go on before that."""
        if self._held or self._given_up_s:
            return True
        queue = self.queue
        if not queue or self._unsent is not None:
            return False
        entry = queue[0]
        if isinstance(entry, Entry) and (entry.sequence > self._durable or self._is_settling(entry.packet_id())):
            return True
        return self.inflight is not None and _AWAITS_RELEASE in self.inflight.values()

    # What the store has.

    def write_again(self) -> None:
        """The store lost something: put all that is to last into it anew."""
        client_id, journal = self.client_id, self.journal
        journal.drop(client_id)
        self._zone, self._stored_user, self._stored_warrant = DEFAULT, None, b""
        self._write_meta()
        for subscription in self.subscriptions.all():
            self._write_subscription(subscription)
        self._write_judged()
        for filter, asked in (self.subscriptions.asked or {}).items():
            journal.put(client_id, asked_field(filter), asked)
        for filter, topic in (self.given or {}).items():
            journal.put(client_id, given_field(filter), topic)
        for nonce, reasons in (self.unsubscribes or {}).items():
            journal.put(client_id, unsubscribed_field(nonce), reasons)
        for packet_id, origin in (self.origins or {}).items():
            journal.put(client_id, received_field(packet_id), origin)
        for entry in (self.kept or {}).values():
            self._write(entry)
        for entry in self.queue or ():
            self._write(entry)
        self._unseal()

    def _write(self, entry: StoredMessage | bytes) -> None:
        if not isinstance(entry, Entry):
            return  # of QoS 0
        packet = entry.packet
        state = WAITS if packet else RELEASED
        qos = packet[0] >> 1 & 3 if packet else 2
        expires_ms = 0 if entry.expires_s == 0.0 else self.ledger.wall_ms(entry.expires_s)
        value = message_value(state, qos, entry.version, expires_ms, entry.share, packet)
        field, giving = sequence_field(entry.sequence), self._giving
        if giving:
            self.journal.put_both(self.client_id, field, value, given_field(giving), self.given_up_to(giving))
        else:
            self.journal.put(self.client_id, field, value)

    def restore(self, fields: dict[bytes, bytes], now_s: float) -> None:
        """Whatever could have been sent before is sent again, as what it may be: a duplicate."""
        messages: list[tuple[int, bytes]] = []
        for field, value in fields.items():
            kind = field[0]
            if kind == MESSAGE:
                messages.append((sequence_of(field), value))
            elif kind == RECEIVED:
                self._restore_origin(received_of(field, value), value, now_s)
            elif kind == SUBSCRIPTION:
                self._restore_subscription(field[1:], value)
            elif kind == ASKED:
                self._restore_asked(field[1:], value)
            elif kind == GIVEN:
                self._restore_given(field[1:], value)
            elif kind == UNSUBSCRIBED:
                self._restore_unsubscribed(field[1:], value)
        messages.sort()
        started = self.meta.started if self.meta.left_ms else self.meta.sequences
        for sequence, value in messages:
            self._restore_message(sequence, value, sequence <= started, now_s)
        self._last = self._durable = self.meta.sequences
        self._last_number = self.meta.numbers

    def _restore_message(self, sequence: int, value: bytes, may_be_sent: bool, now_s: float) -> None:
        state, qos, version, expires_ms, share, packet = message_parts(value)
        expires_s = 0.0 if expires_ms == 0 else self.ledger.expires_s(expires_ms)
        entry = Entry(packet, version, expires_s, share, sequence)
        packet_id = entry.packet_id()
        inflight = self.inflight
        assert inflight is not None
        if state == RELEASED:
            inflight[packet_id] = AWAITS_PUBCOMP
            self._keep_entry(packet_id, entry)
        elif may_be_sent and not self.queue and packet_id not in inflight:
            if qos == 1 and not entry.now(now_s):
                self.journal.delete(self.client_id, sequence_field(sequence))  # sent or not, nobody misses it
                return
            self.meta.started = sequence
            inflight[packet_id] = qos
            self._keep_entry(packet_id, entry)
        else:
            if self.queue is None:
                self.queue = deque()
            self.queue.append(entry)
            self.queue_bytes += len(packet)


def restored(
    journal: Journal,
    ledger: Ledger,
    client_id: bytes,
    fields: dict[bytes, bytes],
    router: Router,
    limits: Callable[[str], Limits],
) -> DurableSession:
    """The session as it was at another home, away; its subscriptions aren't in the router yet. `limits` knows those of
    each zone. Raises ValueError, IndexError, struct.error or PacketError for what no home of ours put.
    """
    meta = decode_meta(fields.get(META, b""))
    zone = fields.get(ZONE, DEFAULT.encode()).decode()
    away = router.away5 if meta.version == 5 else router.away4
    session = DurableSession(journal, ledger, meta, away, client_id, limits(zone), 0)
    session._zone = zone
    session.user = session._stored_user = fields.get(USER)
    session.restore_warrant(fields.get(WARRANT, b""))
    session.judged = fields.get(JUDGED, b"")
    session.restore(fields, router.now_s)
    return session
