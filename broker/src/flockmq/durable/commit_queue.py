"""What lasts of a session beside its messages, and when what follows from it may be said.

A session puts what changes into its journal, and asks for a barrier when the turn ends. What always holds: what the
client may take for done is said when the barrier behind it was answered; an origin names one message of the client, for
ever; a journal that refuses a barrier belongs to another home, and from then on nothing is said.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import (
    NUMBERS_RESERVED,
    QUEUED_MESSAGE_BYTES,
    SUBSCRIBES_WAITING_MAX,
)
from flockmq.durable.journal import Journal
from flockmq.durable.proxy_sink import ProxySink
from flockmq.durable.session_record import (
    JUDGED,
    META,
    OWED,
    USER,
    WARRANT,
    ZONE,
    Meta,
    asked_field,
    given_field,
    received_field,
    subscription_field,
    subscription_of,
    subscription_value,
    unsubscribed_field,
)
from flockmq.mqtt.reason import Reason
from flockmq.quotas import Usage
from flockmq.routing.message_id import ORIGIN_BYTES, derived_origin, origin_of, session_source
from flockmq.routing.sink import Sink
from flockmq.routing.subscriber import Subscription
from flockmq.session.client_session import LATER
from flockmq.session.limits import DEFAULT, Limits
from flockmq.session.local_session import LocalSession
from flockmq.session.settlement import DROPPED, PUBREL, PUBREL_UNKNOWN

_MS_PER_S: Final = 1000.0
_SOON_S: Final = 1e-9


@mypyc_attr(acyclic=True)
class Ledger:
    """What the sessions of one core share: who put something that no barrier stands behind yet, and both clocks.

    `wall_offset_s` is the cluster's time less monotonic time, in seconds; whoever runs the turn sets it.
    """

    __slots__ = ("unsealed", "wall_offset_s")

    def __init__(self, wall_offset_s: float) -> None:
        self.unsealed: list[JournaledSession] = []
        self.wall_offset_s = wall_offset_s

    def seal(self) -> None:
        """At the end of a turn, or of a batch of messages: one barrier for each session that put something."""
        while self.unsealed:
            self.unsealed.pop().seal()

    def wall_ms(self, monotonic_s: float) -> int:
        return max(0, int((monotonic_s + self.wall_offset_s) * _MS_PER_S))

    def monotonic_s(self, wall_ms: int) -> float:
        """Below zero for what was before this machine's monotonic clock began."""
        return wall_ms / _MS_PER_S - self.wall_offset_s

    def expires_s(self, wall_ms: int) -> float:
        """Never 0.0, which means never."""
        return max(_SOON_S, self.monotonic_s(wall_ms))


@mypyc_attr(acyclic=True)
class _Seal:
    """What waits for one barrier: messages up to a sequence, and what is to be said, as kind << 16 | packet id."""

    __slots__ = ("effects", "sequence")

    def __init__(self, sequence: int, effects: list[int] | None) -> None:
        self.sequence = sequence
        self.effects = effects


@mypyc_attr(acyclic=True)
class JournaledSession(LocalSession):
    """What a home knows of each of its sessions; `DurableSession` adds the messages on their way to the client."""

    __slots__ = (
        "_counted_bytes", "_durable", "_effects", "_ended", "_front", "_giving", "_is_counted", "_is_unsealed",
        "_last", "_last_number", "_noted_bytes", "_seals", "_stored_user", "_stored_warrant", "_zone", "given",
        "journal", "judged", "ledger", "meta", "must_be_judged", "origins", "owed", "unsubscribes", "user",
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
        super().__init__(sink, client_id, limits, window, max_packet_bytes, meta.expiry_s)
        self.journal = journal
        self.ledger = ledger
        self.meta = meta
        self.origins: dict[int, bytes] | None = None
        """Packet id → origin, and deals behind it, of the QoS 2 messages from the client whose PUBREL hasn't come."""
        self.owed: set[bytes] | None = None
        self.given: dict[bytes, bytes] | None = None
        """Filter of those that are owed → topic up to which all was put."""
        self._giving: bytes = b""
        """The filter for which a retained message is put now."""
        self.unsubscribes: dict[bytes, bytes] | None = None
        self._front: ProxySink | None = sink if isinstance(sink, ProxySink) else None
        self._last: int = 0
        self._last_number: int = 0
        self._durable: int = 0
        self._effects: list[int] | None = None
        self._seals: list[_Seal] | None = None
        self._is_unsealed: bool = False
        self._ended: bool = False
        self.user: bytes | None = user
        """Whose it is; None: client ids aren't bound to users."""
        self.judged: bytes = b""
        """What stands for the rules by which its subscriptions are allowed; b"": nobody knows."""
        self.must_be_judged: bool = False
        """Nothing is sent before they are judged anew."""
        self._zone: str = DEFAULT
        self._stored_user: bytes | None = None
        self._stored_warrant: bytes = b""
        """What the store has."""
        self._is_counted: bool = False
        """Among what its user has."""
        self._counted_bytes: int = 0
        self._noted_bytes: int = 0
        """Of `given` and `unsubscribes`."""

    # The life of the session.

    def opened(self) -> None:
        """Whatever the store has of the client id is another's: one that couldn't be restored."""
        self.journal.drop(self.client_id)
        self._write_meta()
        self._write_judged()
        self.count_in()

    # What its user has.

    def count_in(self) -> None:
        """It stands; the router counts its subscriptions."""
        if self.usage is not None and not self._is_counted:
            self._is_counted = True
            self.usage.began()
            self.count()

    def becomes(self, user: bytes, usage: Usage | None) -> None:
        """Its client came back, and says whose it is."""
        self.user = user
        if self.usage is None and usage is not None:
            self.usage = usage
            for subscription in self.subscriptions.all():
                usage.subscribed(subscription.filter)
            self.count_in()

    def count(self) -> None:
        """More waits than before, or less."""
        if self._is_counted and self.usage is not None:
            held = self.stored_bytes()
            if held != self._counted_bytes:
                self.usage.queued(held - self._counted_bytes)
                self._counted_bytes = held

    def stored_bytes(self) -> int:
        """What it takes of its user's quota: messages, its will, its names, and what is noted of exchanges."""
        will = self.meta.will
        names = len(self.client_id) + len(self.user or b"")
        received = QUEUED_MESSAGE_BYTES * len(self.origins or ())
        return names + (0 if will is None else len(will.message.packet)) + received + self._noted_bytes

    def _may_note(self, size_bytes: int) -> bool:
        """Its user's quota has room for it."""
        return self.usage is None or self.usage.may_queue(size_bytes, is_away=False)

    def _count_out(self) -> None:
        if self._is_counted and self.usage is not None:
            self._is_counted = False
            self.usage.queued(-self._counted_bytes)
            self._counted_bytes = 0
            self.usage.ended()

    def will_published(self) -> None:
        self.meta.will = None
        self._write_meta()
        self.count()

    def will_origin(self) -> bytes:
        """The origin of the will of the last CONNECT, the same however often it is published."""
        return derived_origin(self.meta.will_source, b"will")

    def erase(self) -> None:
        """It ended, and is no more in the store either."""
        if not self._ended:
            self.journal.drop(self.client_id)
        self.abandon()

    def has_ended(self) -> bool:
        """It ended, or goes on elsewhere."""
        return self._ended or self.journal.is_closed

    def abandon(self) -> None:
        """It isn't ours any more: barriers that are still to be answered do nothing."""
        self._count_out()
        super().abandon()
        self._ended = True
        self._front = None
        self._effects = self._seals = self.origins = None

    def _write_meta(self) -> None:
        if self._ended:
            return
        meta = self.meta
        meta.expiry_s = self.expiry_s
        meta.version = self.sink.protocol_version
        self.journal.put(self.client_id, META, meta.encode())
        if self._zone != self.limits.name:
            self._zone = self.limits.name
            self.journal.put(self.client_id, ZONE, self._zone.encode())
        if self.user is not None and self._stored_user != self.user:
            self._stored_user = self.user
            self.journal.put(self.client_id, USER, self.user)
        will = meta.will
        if will is not None and will.warrant:
            warrant = meta.will_source + will.warrant
            if self._stored_warrant != warrant:
                self._stored_warrant = warrant
                self.journal.put(self.client_id, WARRANT, warrant)

    def came_by(self, rules: bytes | None) -> None:
        """Its client is back, and these rules hold for it now (as in `session_rpc.messages.Opening`)."""
        if rules is None or (rules and not len(self.subscriptions)):
            self.judged_by(rules or b"")
        else:
            self.goes_on_by(rules)

    def goes_on_by(self, rules: bytes | None) -> None:
        """Its client is there; None: its subscriptions were judged."""
        self.must_be_judged = rules is not None and (not rules or rules != self.judged)

    def judged_by(self, rules: bytes) -> None:
        """All that it has is allowed by these."""
        self.must_be_judged = False
        if rules != self.judged:
            self.judged = rules
            self._write_judged()
            if not rules:
                self.journal.delete(self.client_id, JUDGED)

    def _write_judged(self) -> None:
        if self.judged:
            self.journal.put(self.client_id, JUDGED, self.judged)

    def note_asked(self, filter: bytes, asked: bytes) -> None:
        was = self.subscriptions.asked_for(filter)
        super().note_asked(filter, asked)
        if asked != was:
            if asked != filter:
                self.journal.put(self.client_id, asked_field(filter), asked)
            else:
                self.journal.delete(self.client_id, asked_field(filter))

    def add_subscription(self, subscription: Subscription) -> None:
        super().add_subscription(subscription)
        self._write_subscription(subscription)

    def _write_subscription(self, subscription: Subscription) -> None:
        filter = subscription.filter
        value = subscription_value(subscription, self.is_owed(filter))
        self.journal.put(self.client_id, subscription_field(filter), value)

    def owe(self, subscription: Subscription) -> None:
        """It is to get what is retained: here, or at the next home."""
        if self.owed is None:
            self.owed = set()
        self.owed.add(subscription.filter)
        self._forget_given(subscription.filter)
        self._write_subscription(subscription)

    def gave(self, subscription: Subscription) -> None:
        """All of that was put for it."""
        owed = self.owed
        if not self._ended and owed is not None and subscription.filter in owed:
            owed.discard(subscription.filter)
            self._write_subscription(subscription)
            self._forget_given(subscription.filter)

    def is_owed(self, filter: bytes) -> bool:
        return self.owed is not None and filter in self.owed

    def giving(self, filter: bytes, topic: bytes) -> None:
        """What is put next, if it is put in the journal, is what is retained for this topic, given for this filter."""
        if self.given is None:
            self.given = {}
        former = self.given.get(filter)
        more_bytes = len(topic) - len(former) if former is not None else _note_bytes(filter, topic)
        if more_bytes > 0 and not self._may_note(more_bytes):
            return  # the next home gives it again
        self._noted_bytes += more_bytes
        self.given[filter] = topic
        self._giving = filter

    def gave_one(self) -> None:
        self._giving = b""

    def given_up_to(self, filter: bytes) -> bytes:
        return b"" if self.given is None else self.given.get(filter, b"")

    def _forget_given(self, filter: bytes) -> None:
        topic = None if self.given is None else self.given.pop(filter, None)
        if topic:
            self._noted_bytes -= _note_bytes(filter, topic)
            self.journal.delete(self.client_id, given_field(filter))
            self.count()

    def remove_subscription(self, filter: bytes) -> Subscription | None:
        removed = super().remove_subscription(filter)
        if removed is not None:
            if self.owed is not None:
                self.owed.discard(filter)
            self._forget_given(filter)
            self.journal.delete(self.client_id, subscription_field(filter))
        return removed

    # UNSUBSCRIBEs whose answers may be lost with a home.

    def unsubscribed(self, nonce: bytes) -> list[int] | None:
        """The reason codes of one that was asked before."""
        reasons = None if self.unsubscribes is None else self.unsubscribes.get(nonce)
        return None if reasons is None else list(reasons)

    def note_unsubscribed(self, nonce: bytes, reasons: list[int]) -> None:
        """It removed something: whoever asks again is told so. The client has no more than these under way."""
        if Reason.SUCCESS not in reasons:
            return
        known = self.unsubscribes
        if known is None:
            self.unsubscribes = known = {}
        elif len(known) >= SUBSCRIBES_WAITING_MAX:
            self._forget_unsubscribed(next(iter(known)))
        noted = bytes(reasons)
        if self._may_note(_note_bytes(nonce, noted)):  # else whoever asks again is told that there was none
            known[nonce] = noted
            self._noted_bytes += _note_bytes(nonce, noted)
            self.journal.put(self.client_id, unsubscribed_field(nonce), noted)
            self.count()

    def forget_unsubscribed(self) -> None:
        """The client has another connection, on which it asks for nothing of that again."""
        for nonce in list(self.unsubscribes or ()):
            self._forget_unsubscribed(nonce)
        self.unsubscribes = None

    def _forget_unsubscribed(self, nonce: bytes) -> None:
        assert self.unsubscribes is not None
        self._noted_bytes -= _note_bytes(nonce, self.unsubscribes.pop(nonce))
        self.journal.delete(self.client_id, unsubscribed_field(nonce))

    def _restore_unsubscribed(self, nonce: bytes, reasons: bytes) -> None:
        if self.unsubscribes is None:
            self.unsubscribes = {}
        self.unsubscribes[nonce] = reasons
        self._noted_bytes += _note_bytes(nonce, reasons)

    def restore_warrant(self, value: bytes) -> None:
        """Where it is of the will that there is: a home of an earlier release knows nothing of this."""
        meta = self.meta
        if meta.will is not None and value.startswith(meta.will_source):
            self._stored_warrant = value
            meta.will.warrant = value[len(meta.will_source) :]

    def _restore_subscription(self, filter: bytes, value: bytes) -> None:
        super().add_subscription(subscription_of(self, filter, value))
        if value[0] & OWED:
            if self.owed is None:
                self.owed = set()
            self.owed.add(filter)

    def _restore_asked(self, filter: bytes, asked: bytes) -> None:
        super().note_asked(filter, asked)

    def _restore_given(self, filter: bytes, topic: bytes) -> None:
        if self.given is None:
            self.given = {}
        self.given[filter] = topic
        self._noted_bytes += _note_bytes(filter, topic)

    # QoS 2 from the client.

    def renew_sender(self, nonce: bytes) -> None:
        """The client has another connection. What it published on the former one comes under its origin: from there, if
        it was accepted and is on its way to other nodes, or from here, if it is published again. What is published now
        may come before that, and under a later one of the same source would make it a repeat.
        """
        self.meta.sender = session_source(nonce)

    def origin_for(self, packet_id: int, deals: bytes = b"") -> bytes:
        """The origin of the message that the client publishes under this packet id, and the deals behind it that were
        proposed first, the same if it does so again before PUBREL; b"": too many await their PUBREL. It may be used
        when the next barrier was answered.
        """
        origins = self.origins
        if origins is not None and packet_id in origins:
            return origins[packet_id]
        now_s = self.sink.now_s()
        if self._ended or not self.may_receive(now_s) or not self._may_note(QUEUED_MESSAGE_BYTES + len(deals)):
            return b""
        if origins is None:
            self.origins = origins = {}
        self._last_number += 1
        if self._last_number > self.meta.numbers:
            self.meta.numbers = self._last_number + NUMBERS_RESERVED
            self._write_meta()
        origins[packet_id] = origin_of(self.meta.sender, self._last_number) + deals
        self._noted_bytes += len(deals)
        self.remember(packet_id, now_s)
        self.journal.put(self.client_id, received_field(packet_id), origins[packet_id])
        self.count()
        return origins[packet_id]

    def pubrel(self, packet_id: int) -> int:
        self._when_durable(PUBREL if self.release(packet_id) else PUBREL_UNKNOWN, packet_id)
        return LATER

    def forget(self, packet_id: int) -> None:
        self.release(packet_id)
        self._when_durable(DROPPED, packet_id)

    def release(self, packet_id: int) -> bool:
        if not super().release(packet_id):
            return False
        assert self.origins is not None
        self._noted_bytes -= len(self.origins.pop(packet_id)) - ORIGIN_BYTES
        self.journal.delete(self.client_id, received_field(packet_id))
        return True

    def _restore_origin(self, packet_id: int, origin: bytes, now_s: float) -> None:
        if self.origins is None:
            self.origins = {}
        self.origins[packet_id] = origin
        self._noted_bytes += len(origin) - ORIGIN_BYTES
        self.remember(packet_id, now_s)

    # Durability.

    def _when_durable(self, kind: int, packet_id: int) -> None:
        """What is to be said when all that was put so far is durable."""
        effects = self._effects
        if effects is None:
            self._effects = effects = []
        effects.append(kind << 16 | packet_id)
        self._unseal()

    def _unseal(self) -> None:
        if not self._is_unsealed:
            self._is_unsealed = True
            self.ledger.unsealed.append(self)

    def seal(self) -> None:
        """Ask for a barrier behind all that was put."""
        self._is_unsealed = False
        if self._ended:
            return
        self.count()
        seals = self._seals
        if seals is None:
            self._seals = seals = []
        seals.append(_Seal(self._last, self._effects))
        self._effects = None
        self.journal.barrier(self._sealed)

    def _sealed(self, is_durable: bool) -> None:
        if self._ended:
            return
        if not is_durable:
            self._ended = True
            return
        seals = self._seals
        assert seals is not None
        seal = seals.pop(0)
        if not seals:
            self._seals = None
        self._durable = seal.sequence
        if seal.effects is not None:
            for effect in seal.effects:
                self._say(effect >> 16, effect & 0xFFFF)
        if self.inflight is not None:
            self._send_waiting(self.inflight)
            self.count()

    def _say(self, kind: int, packet_id: int) -> None:
        if self._front is not None:
            self._front.settled(kind, packet_id)


def _note_bytes(key: bytes, value: bytes) -> int:
    return QUEUED_MESSAGE_BYTES + len(key) + len(value)
