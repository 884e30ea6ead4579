"""Who gets messages of a router: one session, its subscriptions, and what each of them asks for [MQTT-3.8.3.1].

What always holds: a session has one subscription of each filter at most.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.mqtt.message import StoredMessage
from flockmq.mqtt.topic_aliases import OutgoingAliases
from flockmq.quotas import Usage
from flockmq.routing.filter_index import has_wildcard, shape_of
from flockmq.routing.sink import AWAY, Sink

SENT: Final = 0
QUEUED: Final = 1
REFUSED: Final = 2
REPLACED: Final = 3
"""Queued in the place of the oldest message, which is lost: only for a client that is away. From REFUSED on some
message found no room.
"""
UNWANTED: Final = 4
"""Nothing of QoS 0 waits for a client that is away."""


@mypyc_attr(acyclic=True)
class Subscriber:
    """A session, as a router knows it: what it is put goes to `sink` now, or waits.

    `max_packet_bytes`: the client takes no larger packet, 0: any; `usage`: of its user, None: it has no quota.
    """

    __slots__ = ("aliases", "client_id", "max_packet_bytes", "sink", "subscriptions", "usage")

    def __init__(self, sink: Sink, client_id: bytes, max_packet_bytes: int) -> None:
        self.sink = sink
        self.client_id = client_id
        self.max_packet_bytes = max_packet_bytes
        self.aliases: OutgoingAliases | None = None
        self.subscriptions = SubscriptionSet()
        self.usage: Usage | None = None

    def offer(self, packet: bytes, packet_id: int, qos: int, stored: StoredMessage | None = None) -> int:
        """Send a QoS ≥ 1 PUBLISH, or let it wait: SENT, QUEUED, REPLACED, or REFUSED for want of room. `stored`: the
        packet, where more than its bytes must be known of it.
        """
        raise NotImplementedError(type(self).__name__)

    def offer_qos0(self, entry: StoredMessage | bytes) -> int:
        """Let a QoS 0 PUBLISH wait for a client that is away: QUEUED, REPLACED, REFUSED or UNWANTED."""
        raise NotImplementedError(type(self).__name__)

    def takes(self, packet_bytes: int) -> bool:
        """`offer` has a place for one more packet."""
        raise NotImplementedError(type(self).__name__)

    def has_room(self, packet_bytes: int) -> bool:
        """A packet more leaves most of the room to what is published."""
        raise NotImplementedError(type(self).__name__)

    def is_connected(self) -> bool:
        raise NotImplementedError(type(self).__name__)

    def is_congested(self) -> bool:
        """So many messages wait that whoever publishes to this session should pause."""
        raise NotImplementedError(type(self).__name__)

    def cut_off(self) -> bool:
        """End the connection: its client has no room, and must not go on as if it had got everything. False: the
        session ended with it.
        """
        raise NotImplementedError(type(self).__name__)


@mypyc_attr(acyclic=True)
class Subscription:
    """`identifiers` is the encoded Subscription Identifier properties, empty when the client gave none."""

    __slots__ = ("filter", "identifiers", "no_local", "qos", "retain_as_published", "session")

    def __init__(
        self,
        session: Subscriber,
        filter: bytes,
        qos: int,
        no_local: bool = False,
        retain_as_published: bool = False,
        identifiers: bytes = b"",
    ) -> None:
        self.session = session
        self.filter = filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifiers = identifiers

    def is_plain(self) -> bool:
        """A QoS 0 message reaches this subscriber byte by byte as it was published."""
        session = self.session
        return (
            not self.no_local
            and not self.identifiers
            and session.max_packet_bytes == 0
            and session.aliases is None
            and session.sink.flow != AWAY
        )


@mypyc_attr(acyclic=True)
class SubscriptionSet:
    """The subscriptions of one session: none, one kept as itself, or many by filter. `filter_bytes`: of all filters;
    `asked`: filter → the one that the client asked for, where another was made of it.
    """

    __slots__ = ("_held", "_shapes", "asked", "filter_bytes")

    def __init__(self) -> None:
        self._held: Subscription | dict[bytes, Subscription] | None = None
        self._shapes: dict[bytes, int] | None = None
        """How many subscriptions have each shape of wildcards; None: not counted yet, or there are none."""
        self.asked: dict[bytes, bytes] | None = None
        self.filter_bytes: int = 0

    def __len__(self) -> int:
        held = self._held
        if held is None:
            return 0
        return len(held) if isinstance(held, dict) else 1

    def find(self, filter: bytes) -> Subscription | None:
        held = self._held
        if held is None:
            return None
        if isinstance(held, dict):
            return held.get(filter)
        return held if held.filter == filter else None

    def all(self) -> list[Subscription]:
        held = self._held
        if held is None:
            return []
        return list(held.values()) if isinstance(held, dict) else [held]

    def add(self, subscription: Subscription) -> None:
        """In the place of an older one with its filter."""
        filter, held = subscription.filter, self._held
        if self.find(filter) is None:
            self.filter_bytes += len(filter)
            if self._shapes is not None:
                _count(self._shapes, filter, 1)
        if isinstance(held, dict):
            held[filter] = subscription
        elif held is None or held.filter == filter:
            self._held = subscription
        else:
            self._held = {held.filter: held, filter: subscription}

    def remove(self, filter: bytes) -> Subscription | None:
        self.note_asked(filter, filter)
        held, removed = self._held, self.find(filter)
        if removed is None:
            return None
        self.filter_bytes -= len(filter)
        if isinstance(held, dict) and len(held) > 1:
            del held[filter]
            if self._shapes is not None:
                _count(self._shapes, filter, -1)
        else:
            self._held = self._shapes = None
        return removed

    def clear(self) -> None:
        self._held = self._shapes = self.asked = None
        self.filter_bytes = 0

    def note_asked(self, filter: bytes, asked: bytes) -> None:
        """The client asked for this one: so rules are to be asked about it."""
        if filter == asked:
            if self.asked is not None:
                self.asked.pop(filter, None)
        else:
            if self.asked is None:
                self.asked = {}
            self.asked[filter] = asked

    def asked_for(self, filter: bytes) -> bytes:
        return filter if self.asked is None else self.asked.get(filter, filter)

    def may_have_shape(self, shape: bytes, most: int) -> bool:
        """One client's wildcards stand in so many places at most; a session of one filter needs no set."""
        shapes = self._shapes
        if shapes is None:
            if self._held is None:
                return True
            self._shapes = shapes = {}
            for subscription in self.all():
                _count(shapes, subscription.filter, 1)
        return shape in shapes or len(shapes) < most


def _count(shapes: dict[bytes, int], filter: bytes, change: int) -> None:
    """One subscription more, or less, has the filter's shape, if it has one."""
    if has_wildcard(filter):
        shape = shape_of(filter)
        shapes[shape] = shapes.get(shape, 0) + change
        if not shapes[shape]:
            del shapes[shape]
