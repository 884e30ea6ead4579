"""A durable session at its owner: it outlives its connection and a crash of its owner. The client's node has a session
proxy for it (`session.remote_session`).

It consists of its stored state (`session_record`), the messages to its client (`message_queue`, `outgoing`), QoS 2
messages from its client (`incoming`), pending commits (`commit_queue`), and its use of the user's quota
(`session_usage`). Invariants:
- After a reconnect nothing is sent before the reconnect is committed. Otherwise the next owner would assume that
  messages which were sent now had never been sent.
- If a barrier fails, another core owns the slot. From then on the session sends nothing.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import QUEUED_MESSAGE_BYTES
from flockmq.durable.commit_queue import CommitQueue, CommitState
from flockmq.durable.incoming import Incoming
from flockmq.durable.message_queue import MessageQueue
from flockmq.durable.outgoing import Outgoing
from flockmq.durable.pending_writes import SlotWriter
from flockmq.durable.proxy_sink import ProxySink
from flockmq.durable.session_fields import Meta
from flockmq.durable.session_record import SessionRecord, may_note
from flockmq.durable.session_usage import SessionUsage
from flockmq.durable.slot import OwnedSlot
from flockmq.mqtt.message import StoredMessage, Will
from flockmq.quotas import Usage
from flockmq.routing.message_id import derived_origin, session_source
from flockmq.routing.sink import AWAY, FLOWING, AwaySink, Sink
from flockmq.routing.subscriber import REFUSED, UNWANTED, Subscriber, Subscription
from flockmq.session.limits import Limits
from flockmq.session.remote_session import (
    DROPPED,
    PAIR_BYTES,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREC_REFUSED,
    PUBREL,
    PUBREL_UNKNOWN,
)

_RETURNED: Final = 0x100
"""In addition to the kinds of `session.remote_session`: the commit is of the client's reconnect."""


@mypyc_attr(acyclic=True)
class DurableSession(Subscriber):
    """Created by a CONNECT or by `restored_session.restored`. Only its owner calls it, in event-loop iterations that
    end with `commit_state.request_barriers`.
    """

    __slots__ = (
        "_commits",
        "_sends_again_later",
        "_unwritten_returns",
        "_wants_barrier",
        "commit_state",
        "incoming",
        "limits",
        "messages",
        "meta",
        "must_reauthorize",
        "outgoing",
        "quota",
        "record",
        "writer",
    )  # fmt: skip

    def __init__(
        self,
        writer: SlotWriter,
        commit_state: CommitState,
        meta: Meta,
        sink: Sink,
        client_id: bytes,
        limits: Limits,
        window: int,
        max_packet_bytes: int = 0,
        user: bytes | None = None,
    ) -> None:
        super().__init__(sink, client_id, max_packet_bytes)
        self.writer = writer
        self.commit_state = commit_state
        self.meta = meta
        self.limits = limits
        self.record = SessionRecord(writer, client_id, meta, user, limits.name)
        self.messages = MessageQueue(self.record, commit_state, limits, window)
        self.incoming = Incoming(self.record)
        self.quota = SessionUsage(self.record, self.messages, self.incoming)
        self._commits = CommitQueue()
        self.outgoing = Outgoing(self.record, self._commits, self.messages, self.quota, sink, max_packet_bytes)
        self.must_reauthorize: bool = False
        """True: send nothing before the subscriptions are authorized again."""
        self._wants_barrier: bool = False
        self._unwritten_returns: int = 0
        """How many reconnects of the client aren't committed yet."""
        self._sends_again_later: bool = False
        """True: call `send_again` when all of these are committed."""

    # --- the life of the session --------------------------------------------------------------------------------------

    def opened(self) -> None:
        """From now on this is the session of its client id."""
        self.record.begin()
        self.quota.begin()

    def has_ended(self) -> bool:
        """True if the session ended, or runs on another owner now."""
        return self.record.has_ended or self.writer.is_closed

    def runs_in(self, slot: OwnedSlot | None) -> bool:
        """True if the session runs here: its slot was neither given up (None) nor taken by another core."""
        return slot is not None and slot.writer is self.writer and not slot.is_lost

    def is_empty(self) -> bool:
        """True if a new session would be the same for its client, and no will waits."""
        messages = self.messages.stored_bytes() + len(self.incoming)
        return not messages and not len(self.subscriptions) and self.meta.will is None

    def erase(self) -> None:
        """The session ended: delete it from the store too."""
        self.record.end()
        self.abandon()

    def abandon(self) -> None:
        """Another owner has the session. Barriers that are answered later have no effect."""
        self.quota.end()
        self.subscriptions.clear()
        self.messages.clear()
        self.incoming.clear()
        self._commits.clear()
        self.record.has_ended = True
        self.outgoing.proxy = None

    def set_usage(self, usage: Usage | None) -> None:
        """Set the usage of its user; None: the user has no quota."""
        self.usage = self.quota.usage = usage

    def set_user(self, user: bytes, usage: Usage | None) -> None:
        """The client reconnected and named its user."""
        self.record.user = user
        if self.usage is None and usage is not None:
            self.set_usage(usage)
            for subscription in self.subscriptions.all():
                usage.subscribed(subscription.filter)
            self.quota.begin()

    def will_published(self) -> None:
        self.meta.will = None
        self.record.write_meta()
        self.quota.count()

    def will_origin(self) -> bytes:
        """The message id of the last CONNECT's will; the same each time the will is published."""
        return derived_origin(self.meta.will_source, b"will")

    def reconnected_under(self, rules: bytes | None) -> None:
        """The client reconnected. If the subscriptions were last authorized under other rules, the session waits until
        they are authorized again. `rules`: as in `session_rpc.messages.SessionRequest`.
        """
        if rules is None or (rules and not len(self.subscriptions)):
            self.authorized_under(rules or b"")
        else:
            self.hold_until_authorized(rules)

    def hold_until_authorized(self, rules: bytes | None) -> None:
        """Decide whether the session must wait until its subscriptions are authorized under these rules. None: they
        were.
        """
        self.must_reauthorize = rules is not None and (not rules or rules != self.record.authorized_rules)

    def authorized_under(self, rules: bytes) -> None:
        """All subscriptions are authorized under these rules."""
        self.must_reauthorize = False
        self.record.authorized_under(rules)

    # --- away and back ------------------------------------------------------------------------------------------------

    def resume(self, fresh: DurableSession) -> None:
        """Take over the data of a new connection, for which `fresh` was created. Nothing is sent until `send_again`,
        because CONNACK must be sent first.
        """
        meta = self.meta
        if meta.will_source != fresh.meta.will_source:
            self.record.forget_requests()
            # Start a new message source for the new connection. Messages from the old connection may still be on their
            # way. If new messages continued the old numbers and overtook these, receivers would drop the old ones as
            # duplicates.
            meta.sender = session_source(fresh.meta.will_source)
        meta.will = fresh.meta.will
        meta.will_source = fresh.meta.will_source
        meta.expiry_s = fresh.meta.expiry_s
        if fresh.record.user is not None:
            self.set_user(fresh.record.user, fresh.usage)
        self.quota.count()
        self.attach(fresh.sink, fresh.limits, fresh.messages.window, fresh.max_packet_bytes)

    def attach(self, sink: Sink, limits: Limits, window: int, max_packet_bytes: int) -> None:
        """Attach a connection. `send_again` follows when its CONNACK was sent."""
        assert isinstance(sink, ProxySink)
        sink.flow = AWAY
        self.sink = sink
        self.limits = self.messages.limits = limits
        self.record.zone = limits.name
        self.messages.window = window
        self.max_packet_bytes = max_packet_bytes
        self.outgoing.attach(sink, max_packet_bytes)
        self._sends_again_later = self.must_reauthorize = False
        was_away, self.meta.left_ms = self.meta.left_ms != 0, 0
        self.meta.version = sink.protocol_version
        self.record.write_meta()
        if was_away:
            self._unwritten_returns += 1
            self._commits.acknowledge(_RETURNED, 0)
            self._wrote()

    def send_again(self) -> None:
        """Send all unacknowledged messages, then waiting messages. It may be called again on the same connection, when
        something may have been lost on the way to the session proxy.
        """
        proxy = self.outgoing.proxy
        if proxy is None or self.must_reauthorize:
            return
        if proxy.flow == AWAY:  # From now on QoS 0 messages are sent at once, behind those that waited.
            proxy.flow = FLOWING
            proxy.router.sink_changed(self)
        self._sends_again_later = self._unwritten_returns > 0
        if self._sends_again_later:
            self.outgoing.send_qos0()
        else:
            self.outgoing.send_again()

    def leave(self, away: Sink, will: Will | None = None) -> None:
        """The connection ended but the session stays: queue all messages from now on, and keep `will`, if any."""
        assert isinstance(away, AwaySink)
        now_s = self.sink.now_s()
        self.sink = away
        self.max_packet_bytes = 0
        self.outgoing.leave(away)
        away.dropped(self.messages.drop_beyond_limit())
        self._sends_again_later = self.must_reauthorize = False
        self.meta.will = will
        self.meta.left_ms = max(1, self.commit_state.wall_ms(now_s))
        self.record.write_meta()
        self.quota.count()

    # --- subscriptions ------------------------------------------------------------------------------------------------

    def note_asked(self, filter: bytes, asked: bytes) -> None:
        """`asked` is the client's own filter, before rewriting made it `filter`. Authorization checks use `asked`."""
        if self.subscriptions.note_asked(filter, asked):
            self.record.write_asked(filter, asked)

    def remove_subscription(self, filter: bytes) -> Subscription | None:
        self.note_asked(filter, filter)
        removed = self.subscriptions.remove(filter)
        if removed is not None:
            self.record.drop_subscription(filter)
            self.quota.count()
        return removed

    def await_retained(self, subscription: Subscription) -> None:
        """The subscription gets the retained messages, from this owner or from the next one."""
        self.record.await_retained(subscription)
        self.quota.count()

    def retained_sent(self, subscription: Subscription) -> None:
        """All retained messages for the subscription were queued."""
        self.record.retained_sent(subscription)
        self.quota.count()

    def note_subscribed(self, nonce: bytes) -> None:
        self.record.note_subscribed(nonce, self.usage)
        self.quota.count()

    def note_unsubscribed(self, nonce: bytes, reasons: list[int]) -> None:
        self.record.note_unsubscribed(nonce, reasons, self.usage)
        self.quota.count()

    # --- what is published for the client -----------------------------------------------------------------------------

    def offer(self, packet: bytes, packet_id: int, qos: int, stored: StoredMessage | None = None) -> int:
        """Store the message; it is sent after the commit. Returns QUEUED or REFUSED."""
        if stored is None:
            stored = StoredMessage(packet, self.sink.protocol_version, 0.0)
        answer = self.outgoing.put(stored)
        if answer != REFUSED:
            self._wrote()
        return answer

    def offer_qos0(self, entry: StoredMessage | bytes) -> int:
        if not self.limits.mqueue_store_qos0:
            return UNWANTED
        if self.commit_state.is_short:
            return REFUSED
        if not isinstance(entry, StoredMessage):
            entry = StoredMessage(entry, self.sink.protocol_version, 0.0)
        return self.outgoing.put(entry)

    def takes(self, packet_bytes: int) -> bool:
        return self.outgoing.takes(packet_bytes)

    def accepts_now(self) -> bool:
        """True if the client is connected and its window has room, so a message would wait only for its commit."""
        messages = self.messages
        used = len(messages.inflight) + len(messages.queue or ())
        return self.outgoing.proxy is not None and used < messages.window

    def has_room(self, packet_bytes: int) -> bool:
        return self.messages.has_room(packet_bytes)

    def is_connected(self) -> bool:
        return self.messages.window > 0

    def is_congested(self) -> bool:
        return self.messages.is_congested()

    def cut_off(self) -> bool:
        self.sink.overflow()
        return not self.is_connected()

    def take_out(self, gone: list[StoredMessage | bytes], stay: list[StoredMessage | bytes]) -> None:
        """Remove `gone` from the queue. Only `stay` remains."""
        self.messages.take_out(gone, stay)
        self.quota.count()

    # --- what the client says -----------------------------------------------------------------------------------------

    def origin_for(self, packet_id: int, deals: bytes = b"") -> bytes:
        """The message id for a QoS 2 message with this packet id, followed by the members chosen for it first; the same
        if the client repeats the message before PUBREL. b"": too many messages wait for PUBREL. The id may be used
        after the next barrier was answered.
        """
        origin = self.incoming.origin(packet_id)
        if origin or self.record.has_ended:
            return origin
        now_s = self.sink.now_s()
        for overdue in self.incoming.overdue(self.limits, now_s):
            self._forget(overdue)
        if self.incoming.is_full(self.limits) or not may_note(self.usage, QUEUED_MESSAGE_BYTES + len(deals)):
            return b""
        origin = self.incoming.begin(packet_id, deals, now_s)
        self.quota.count()
        return origin

    def reported(self, pairs: bytes) -> None:
        """Process acknowledgements from the session proxy (`session.remote_session`). Callers pass none from a proxy
        that was replaced.
        """
        outgoing = self.outgoing
        for at in range(0, len(pairs) - 2, PAIR_BYTES):
            kind = pairs[at]
            packet_id = pairs[at + 1] << 8 | pairs[at + 2]
            if kind in (PUBACK, PUBCOMP, PUBREC_REFUSED):
                outgoing.ends(packet_id, kind)
            elif kind == PUBREC:
                outgoing.pubrec(packet_id)
            elif kind == PUBREL:
                self._commits.acknowledge(PUBREL if self.incoming.release(packet_id) else PUBREL_UNKNOWN, packet_id)
            elif kind == DROPPED:
                self._forget(packet_id)
        if self._commits.has_more():
            self._wrote()
        if outgoing.proxy is not None and pairs:
            outgoing.proxy.progressed(self.messages.is_congested())

    def _forget(self, packet_id: int) -> None:
        """The message was refused, or waited too long for its PUBREL: its packet id may be used for another message."""
        self.incoming.release(packet_id)
        self._commits.acknowledge(DROPPED, packet_id)
        self._wrote()

    # --- commits ------------------------------------------------------------------------------------------------------

    def _wrote(self) -> None:
        """Something was written and no barrier was requested for it yet."""
        if not self._wants_barrier:
            self._wants_barrier = True
            self.commit_state.uncommitted.append(self._request_barrier)

    def _request_barrier(self) -> None:
        """Request a barrier behind all writes so far."""
        self._wants_barrier = False
        if not self.record.has_ended:
            self.quota.count()
            self._commits.close(self.messages.last)
            self.writer.barrier(self._committed)

    def _committed(self, is_committed: bool) -> None:
        if self.record.has_ended:
            return
        if not is_committed:
            self.record.has_ended = True
            return
        commit = self._commits.take()
        self.outgoing.committed = commit.sequence
        if commit.effects is not None:
            for effect in commit.effects:
                self._committed_one(effect >> 16, effect & 0xFFFF)
        self.outgoing.send_waiting()
        self.quota.count()

    def _committed_one(self, kind: int, packet_id: int) -> None:
        if kind != _RETURNED:
            self.outgoing.committed_one(kind, packet_id)
            return
        self._unwritten_returns -= 1
        if self._sends_again_later:
            self.send_again()

    def write_again(self) -> None:
        """The store lost data: write the whole session again."""
        self.record.write_again(self.subscriptions.all(), self.subscriptions.asked)
        self.incoming.write_again()
        self.messages.write_again()
        self._wrote()
