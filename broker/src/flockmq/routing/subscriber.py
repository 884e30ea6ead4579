"""Receivers of a router's messages: a session, and its subscriptions with their options [MQTT-3.8.3.1].

Invariant: a session has at most one subscription for a filter.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr, u8

from flockmq.mqtt.message import StoredMessage
from flockmq.mqtt.topic_aliases import OutgoingAliases
from flockmq.mqtt.topics import is_shared
from flockmq.quotas import Usage
from flockmq.routing.filter_index import has_wildcard, shape_of
from flockmq.routing.sink import AWAY, Sink

SENT: Final = 0
QUEUED: Final = 1
REFUSED: Final = 2
UNWANTED: Final = 3
"""The session doesn't queue QoS 0 messages for an offline client."""


@mypyc_attr(acyclic=True)
class Subscriber:
    """A session as a router sees it. It sends messages to `sink` or queues them.

    `max_packet_bytes`: the client's maximum packet size, 0: any. `usage`: of its user; None: the user has no quota.
    `is_detached`: it has ended and gets nothing more, though the router may still have some of its filters.
    """

    __slots__ = ("aliases", "client_id", "is_detached", "max_packet_bytes", "sink", "subscriptions", "usage")

    def __init__(self, sink: Sink, client_id: bytes, max_packet_bytes: int) -> None:
        self.sink = sink
        self.client_id = client_id
        self.max_packet_bytes = max_packet_bytes
        self.aliases: OutgoingAliases | None = None
        self.subscriptions = SubscriptionSet()
        self.is_detached: bool = False
        self.usage: Usage | None = None

    def offer(self, packet: bytes, packet_id: int, qos: int, stored: StoredMessage | None = None) -> int:
        """Send or queue a QoS 1 or 2 PUBLISH. Returns SENT, QUEUED or REFUSED. `stored`: the packet with its
        expiry or share filter, if it has one.
        """
        raise NotImplementedError(type(self).__name__)

    def offer_qos0(self, entry: StoredMessage | bytes) -> int:
        """Queue a QoS 0 PUBLISH for an offline client. Returns QUEUED, REFUSED or UNWANTED."""
        raise NotImplementedError(type(self).__name__)

    def takes(self, packet_bytes: int) -> bool:
        """True if `offer` has room for one more packet."""
        raise NotImplementedError(type(self).__name__)

    def has_room(self, packet_bytes: int) -> bool:
        """True if one more packet would leave most of the queue free for published messages."""
        raise NotImplementedError(type(self).__name__)

    def is_connected(self) -> bool:
        raise NotImplementedError(type(self).__name__)

    def takes_turns_as(self) -> bytes:
        """Whose turn it is when something is done for it: its user's, or, where clients have no users, its own."""
        return self.client_id if self.usage is None else self.usage.user

    def is_congested(self) -> bool:
        """True if so many messages wait that publishers to this session should pause."""
        raise NotImplementedError(type(self).__name__)

    def cut_off(self) -> bool:
        """Disconnect the client because its queue is full, so that it doesn't miss messages unknowingly. Returns False
        if the session ended with the connection.
        """
        raise NotImplementedError(type(self).__name__)


@mypyc_attr(acyclic=True)
class Subscription:
    """`identifiers`: the encoded Subscription Identifier properties, empty if there are none. `successor`: what a later
    SUBSCRIBE of the same filter replaced it by. `is_granted`: a SUBSCRIBE of this filter may have been granted: if one
    is refused, the subscription stays.
    """

    __slots__ = (
        "filter", "identifiers", "is_granted", "no_local", "qos", "retain_as_published", "session", "successor",
    )  # fmt: skip

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
        self.qos: u8 = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifiers = identifiers
        self.is_granted: bool = True
        self.successor: Subscription | None = None

    def of_own(self) -> Subscription | None:
        """If it has `no_local`: what the client's own messages come through nevertheless; None: nothing."""
        return None

    def is_plain(self) -> bool:
        """True if the subscriber gets QoS 0 messages unchanged, as they were published."""
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
    """The subscriptions of one session. Holds none, a single one directly, or many by filter. `filter_bytes`: the size
    of all filters. `shared`: how many of them are shared. `asked`: filter → the filter that the client asked for, if a
    rewrite rule changed it.
    """

    __slots__ = ("_held", "_shapes", "asked", "filter_bytes", "shared")

    def __init__(self) -> None:
        self._held: Subscription | dict[bytes, Subscription] | None = None
        self._shapes: dict[bytes, int] | None = None
        """Wildcard shape → number of subscriptions; None: not counted yet, or none."""
        self.asked: dict[bytes, bytes] | None = None
        self.filter_bytes: int = 0
        self.shared: int = 0

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
        """Add it; it replaces an older one with the same filter."""
        filter, held = subscription.filter, self._held
        if self.find(filter) is None:
            self.filter_bytes += len(filter)
            self.shared += is_shared(filter)
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
        self.shared -= is_shared(filter)
        if isinstance(held, dict) and len(held) > 1:
            del held[filter]
            if self._shapes is not None:
                _count(self._shapes, filter, -1)
        else:
            self._held = self._shapes = None
        return removed

    def clear(self) -> None:
        self._held = self._shapes = self.asked = None
        self.filter_bytes = self.shared = 0

    def note_asked(self, filter: bytes, asked: bytes) -> bool:
        """Remember the filter that the client asked for; authorization checks use it. Returns False if it asked for the
        same before.
        """
        known = self.asked
        if filter == asked:
            return known is not None and known.pop(filter, None) is not None
        if known is None:
            self.asked = known = {}
        was, known[filter] = known.get(filter), asked
        return was != asked

    def asked_for(self, filter: bytes) -> bytes:
        return filter if self.asked is None else self.asked.get(filter, filter)

    def may_have_shape(self, shape: bytes, most: int) -> bool:
        """True if the client may have one more filter of this shape: it may have at most `most` different shapes."""
        shapes = self._shapes
        if shapes is None:
            if self._held is None:
                return True
            self._shapes = shapes = {}
            for subscription in self.all():
                _count(shapes, subscription.filter, 1)
        return shape in shapes or len(shapes) < most


def _count(shapes: dict[bytes, int], filter: bytes, change: int) -> None:
    """Add `change` to the count of the filter's shape, if it has wildcards."""
    if has_wildcard(filter):
        shape = shape_of(filter)
        shapes[shape] = shapes.get(shape, 0) + change
        if not shapes[shape]:
            del shapes[shape]
