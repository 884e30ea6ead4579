"""The stored part of a durable session, apart from messages: its state, subscriptions and answered requests. No I/O.

Invariant: each change here is written to the store at once (`session_fields` has the format). After the session has
ended, nothing is written.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import QUEUED_MESSAGE_BYTES, SUBSCRIBES_WAITING_MAX
from flockmq.durable.pending_writes import SlotWriter
from flockmq.durable.session_fields import (
    AUTHORIZATION,
    AUTHORIZED_RULES,
    META,
    SUBSCRIBED,
    USER,
    ZONE,
    Meta,
    asked_field,
    progress_field,
    sequence_field,
    subscription_field,
    subscription_value,
    unsubscribed_field,
)
from flockmq.mqtt.reason import Reason
from flockmq.quotas import Usage
from flockmq.routing.subscriber import Subscription
from flockmq.session.limits import DEFAULT
from flockmq.session_rpc.messages import NONCE_BYTES

_OLDER_BYTES_MAX: Final = (SUBSCRIBES_WAITING_MAX - 1) * NONCE_BYTES


@mypyc_attr(acyclic=True)
class SessionRecord:
    """`has_ended`: the session ended, or runs on another owner now. `user`: the user of the session; None: client ids
    aren't bound to users. `zone`: the name of its limits. `authorized_rules`: hash of the rules under which all its
    subscriptions are authorized; b"": unknown.
    """

    __slots__ = (
        "_sending",
        "_stored_authorization",
        "_stored_user",
        "_stored_zone",
        "authorized_rules",
        "client_id",
        "has_ended",
        "meta",
        "noted_bytes",
        "pending_retained",
        "retained_progress",
        "subscribes",
        "unsubscribes",
        "user",
        "writer",
        "zone",
    )  # fmt: skip

    def __init__(self, writer: SlotWriter, client_id: bytes, meta: Meta, user: bytes | None, zone: str) -> None:
        self.writer = writer
        self.client_id = client_id
        self.meta = meta
        self.user: bytes | None = user
        self.zone = zone
        self.authorized_rules: bytes = b""
        self.has_ended: bool = False
        self.pending_retained: set[bytes] | None = None
        """Filters whose retained messages are still pending."""
        self.retained_progress: dict[bytes, bytes] | None = None
        """Filter with pending retained messages → the last topic that was queued."""
        self.subscribes: bytes = b""
        """Nonces of the SUBSCRIBEs that entitled to retained messages, NONCE_BYTES each. A set would cost each session
        with a subscription 216 B.
        """
        self.unsubscribes: dict[bytes, bytes] | None = None
        """Nonce of an UNSUBSCRIBE → the reason codes of its answer."""
        self.noted_bytes: int = 0
        """Size of `retained_progress` and `unsubscribes`."""
        self._sending: bytes = b""
        """The filter for which a retained message is being queued now; b"": none."""
        self._stored_zone: str = DEFAULT
        self._stored_user: bytes | None = None
        self._stored_authorization: bytes = b""

    def stored_bytes(self) -> int:
        """What this record uses of the user's quota."""
        will = self.meta.will
        names = len(self.client_id) + len(self.user or b"")
        noted_bytes = self.noted_bytes + len(self.subscribes)
        return names + (0 if will is None else len(will.message.packet)) + noted_bytes

    # --- the session itself -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Create the session in the store. Anything stored under this client id belongs to an older session that
        couldn't be restored, and is deleted.
        """
        self.writer.drop(self.client_id)
        self.write_meta()
        self.write_authorized_rules()

    def end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self.writer.drop(self.client_id)

    def write_meta(self) -> None:
        if self.has_ended:
            return
        self.writer.put(self.client_id, META, self.meta.encode())
        if self._stored_zone != self.zone:
            self._stored_zone = self.zone
            self.writer.put(self.client_id, ZONE, self.zone.encode())
        if self.user is not None and self._stored_user != self.user:
            self._stored_user = self.user
            self.writer.put(self.client_id, USER, self.user)
        will = self.meta.will
        if will is not None and will.authorization:
            authorization = self.meta.will_source + will.authorization
            if self._stored_authorization != authorization:
                self._stored_authorization = authorization
                self.writer.put(self.client_id, AUTHORIZATION, authorization)

    def authorized_under(self, rules: bytes) -> None:
        """All subscriptions are authorized under these rules."""
        if rules != self.authorized_rules:
            self.authorized_rules = rules
            self.write_authorized_rules()
            if not rules:
                self.writer.delete(self.client_id, AUTHORIZED_RULES)

    def write_authorized_rules(self) -> None:
        if self.authorized_rules:
            self.writer.put(self.client_id, AUTHORIZED_RULES, self.authorized_rules)

    def write_again(self, subscriptions: list[Subscription], asked: dict[bytes, bytes] | None) -> None:
        """The store lost data: write everything here again."""
        client_id, writer = self.client_id, self.writer
        writer.drop(client_id)
        self._stored_zone, self._stored_user, self._stored_authorization = DEFAULT, None, b""
        self.write_meta()
        for subscription in subscriptions:
            self.write_subscription(subscription)
        self.write_authorized_rules()
        for filter, asked_for in (asked or {}).items():
            writer.put(client_id, asked_field(filter), asked_for)
        for filter, topic in (self.retained_progress or {}).items():
            writer.put(client_id, progress_field(filter), topic)
        if self.subscribes:
            writer.put(client_id, SUBSCRIBED, self.subscribes)
        for nonce, reasons in (self.unsubscribes or {}).items():
            writer.put(client_id, unsubscribed_field(nonce), reasons)

    # --- subscriptions ------------------------------------------------------------------------------------------------

    def write_subscription(self, subscription: Subscription) -> None:
        filter = subscription.filter
        value = subscription_value(subscription, self.awaits_retained(filter))
        self.writer.put(self.client_id, subscription_field(filter), value)

    def write_asked(self, filter: bytes, asked: bytes) -> None:
        """The client asked for another filter than before."""
        if asked != filter:
            self.writer.put(self.client_id, asked_field(filter), asked)
        else:
            self.writer.delete(self.client_id, asked_field(filter))

    def drop_subscription(self, filter: bytes) -> None:
        self._settle(filter)
        self._forget_progress(filter)
        self.writer.delete(self.client_id, subscription_field(filter))

    def awaits_retained(self, filter: bytes) -> bool:
        return self.pending_retained is not None and filter in self.pending_retained

    def _settle(self, filter: bytes) -> None:
        """No retained messages are pending for it. An empty set would cost 216 B per session and slow garbage
        collection.
        """
        if self.pending_retained is not None:
            self.pending_retained.discard(filter)
            if not self.pending_retained:
                self.pending_retained = None

    def await_retained(self, subscription: Subscription) -> None:
        """Mark the subscription: all its retained messages are pending, here or at the next owner."""
        if self.pending_retained is None:
            self.pending_retained = set()
        self.pending_retained.add(subscription.filter)
        self._forget_progress(subscription.filter)
        self.write_subscription(subscription)

    def retained_sent(self, subscription: Subscription) -> None:
        """All retained messages for the subscription were queued."""
        if not self.has_ended and self.awaits_retained(subscription.filter):
            self._settle(subscription.filter)
            self.write_subscription(subscription)
            self._forget_progress(subscription.filter)

    def begin_retained(self, filter: bytes, topic: bytes, usage: Usage | None) -> None:
        """The next message that is queued is the retained message of this topic, for this filter. Its progress is
        stored with it.
        """
        if self.retained_progress is None:
            self.retained_progress = {}
        former = self.retained_progress.get(filter)
        more_bytes = len(topic) - len(former) if former is not None else _note_bytes(filter, topic)
        if more_bytes > 0 and not may_note(usage, more_bytes):
            return  # The quota has no room to store the progress: the next owner may send this message again.
        self.noted_bytes += more_bytes
        self.retained_progress[filter] = topic
        self._sending = filter

    def end_retained(self) -> None:
        self._sending = b""

    def retained_up_to(self, filter: bytes) -> bytes:
        return b"" if self.retained_progress is None else self.retained_progress.get(filter, b"")

    def _forget_progress(self, filter: bytes) -> None:
        topic = None if self.retained_progress is None else self.retained_progress.pop(filter, None)
        if topic:
            self.noted_bytes -= _note_bytes(filter, topic)
            self.writer.delete(self.client_id, progress_field(filter))

    # --- SUBSCRIBEs and UNSUBSCRIBEs whose answers may be lost --------------------------------------------------------

    def has_subscribed(self, nonce: bytes) -> bool:
        """True if this SUBSCRIBE entitled to retained messages before."""
        known = self.subscribes
        return any(known[at : at + NONCE_BYTES] == nonce for at in range(0, len(known), NONCE_BYTES))

    def note_subscribed(self, nonce: bytes, usage: Usage | None) -> None:
        """Store that this SUBSCRIBE entitled to retained messages, so that a repeat doesn't. Only the last
        SUBSCRIBES_WAITING_MAX are kept, as of UNSUBSCRIBEs.
        """
        if not nonce or self.has_subscribed(nonce):
            return
        if may_note(usage, NONCE_BYTES):  # Without quota, a repeat entitles again.
            self.subscribes = self.subscribes[-_OLDER_BYTES_MAX:] + nonce
            self.writer.put(self.client_id, SUBSCRIBED, self.subscribes)

    def unsubscribed(self, nonce: bytes) -> list[int] | None:
        """The reason codes of this UNSUBSCRIBE, if it was answered before; else None."""
        reasons = None if self.unsubscribes is None else self.unsubscribes.get(nonce)
        return None if reasons is None else list(reasons)

    def note_unsubscribed(self, nonce: bytes, reasons: list[int], usage: Usage | None) -> None:
        """Store the answer of an UNSUBSCRIBE that removed something, so that a repeat gets the same answer. Only the
        last SUBSCRIBES_WAITING_MAX answers are kept; a client never has more of them in flight.
        """
        if Reason.SUCCESS not in reasons:
            return
        known = self.unsubscribes
        if known is None:
            self.unsubscribes = known = {}
        elif len(known) >= SUBSCRIBES_WAITING_MAX:
            self._forget_unsubscribed(next(iter(known)))
        noted = bytes(reasons)
        if may_note(usage, _note_bytes(nonce, noted)):  # Without quota, a repeat gets NO_SUBSCRIPTION_EXISTED.
            known[nonce] = noted
            self.noted_bytes += _note_bytes(nonce, noted)
            self.writer.put(self.client_id, unsubscribed_field(nonce), noted)

    def forget_requests(self) -> None:
        """The client has a new connection and doesn't repeat requests of the old one."""
        if self.subscribes:
            self.subscribes = b""
            self.writer.delete(self.client_id, SUBSCRIBED)
        for nonce in list(self.unsubscribes or ()):
            self._forget_unsubscribed(nonce)
        self.unsubscribes = None

    def _forget_unsubscribed(self, nonce: bytes) -> None:
        assert self.unsubscribes is not None
        self.noted_bytes -= _note_bytes(nonce, self.unsubscribes.pop(nonce))
        self.writer.delete(self.client_id, unsubscribed_field(nonce))

    # --- messages -----------------------------------------------------------------------------------------------------

    def put_message(self, sequence: int, value: bytes) -> None:
        field, sending = sequence_field(sequence), self._sending
        if sending:
            self.writer.put(self.client_id, field, value, progress_field(sending), self.retained_up_to(sending))
        else:
            self.writer.put(self.client_id, field, value)

    def delete_message(self, sequence: int) -> None:
        self.writer.delete(self.client_id, sequence_field(sequence))

    # --- restoring ----------------------------------------------------------------------------------------------------

    def restore(self, fields: dict[bytes, bytes]) -> None:
        """Restore the fields that a session has once."""
        self._stored_zone = fields.get(ZONE, DEFAULT.encode()).decode()
        self.user = self._stored_user = fields.get(USER)
        self.authorized_rules = fields.get(AUTHORIZED_RULES, b"")
        self.subscribes = fields.get(SUBSCRIBED, b"")
        will, authorization = self.meta.will, fields.get(AUTHORIZATION, b"")
        # An earlier release may replace the will without this field, so it may belong to an older will.
        if will is not None and authorization.startswith(self.meta.will_source):
            self._stored_authorization = authorization
            will.authorization = authorization[len(self.meta.will_source) :]

    def restore_pending_retained(self, filter: bytes) -> None:
        if self.pending_retained is None:
            self.pending_retained = set()
        self.pending_retained.add(filter)

    def restore_progress(self, filter: bytes, topic: bytes) -> None:
        if self.retained_progress is None:
            self.retained_progress = {}
        self.retained_progress[filter] = topic
        self.noted_bytes += _note_bytes(filter, topic)

    def restore_unsubscribed(self, nonce: bytes, reasons: bytes) -> None:
        if self.unsubscribes is None:
            self.unsubscribes = {}
        self.unsubscribes[nonce] = reasons
        self.noted_bytes += _note_bytes(nonce, reasons)


def may_note(usage: Usage | None, size_bytes: int) -> bool:
    """True if the user's quota has room for this."""
    return usage is None or usage.may_queue(size_bytes, is_away=False)


def _note_bytes(key: bytes, value: bytes) -> int:
    return QUEUED_MESSAGE_BYTES + len(key) + len(value)
