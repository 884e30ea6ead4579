"""What a story is told of: connections, messages, and lives, each of which is one session of one client.

A life begins where CONNACK says that no session was present. A clean one ends with its connection, one that lasts with
the next CONNACK that says so again. The client can't know more: a CONNECT that nobody answered may have begun a
session, or ended one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from judges.topics import is_shared, matches, topic_filter
from judges.verdict import FOREVER
from load.history import Asked, Closed, Connected, Delivered, Disconnected, Message, SubscribeSent

ENVELOPE_MAX_BYTES: Final = 512
"""Of a packet, what isn't its payload."""
ORDINARY: Final = ""
"""The way of what comes by a subscription that isn't shared."""


@dataclass(slots=True, eq=False)
class Connection:
    asked: Asked
    place: int
    """Among those of its client."""
    connected: Connected | None = None
    disconnected: Disconnected | None = None
    closed: Closed | None = None
    asked_by_then: int = 0
    """How many of its client had asked when it was closed: several may have in one millisecond, before and after."""
    is_refused: bool = False
    life: Life | None = None
    before: Life | None = None
    """The life that its client had last when CONNACK came."""
    was_over: bool = False
    """That life was."""
    previous: Connection | None = None
    """The last that it had."""
    unsure: list[Connection] = field(default_factory=list)
    """Those before it that nobody answered."""

    @property
    def until(self) -> float:
        return FOREVER if self.closed is None else self.closed.at

    @property
    def expiry_s(self) -> float:
        """For how long the session outlives it, as its client said last; 0: it ends with it."""
        said = self.disconnected
        if not self.asked.lasts or (said is not None and said.ends):
            return 0.0
        return self.asked.expiry_s if said is None or said.expiry_s < 0.0 else said.expiry_s

    @property
    def shortest_expiry_s(self) -> float:
        """Perhaps its node didn't hear what it said last."""
        return min(self.expiry_s, self.asked.expiry_s)

    @property
    def longest_expiry_s(self) -> float:
        return max(self.expiry_s, self.asked.expiry_s)

    @property
    def may_end(self) -> bool:
        """It ends the session that it finds, or the one that it has."""
        return self.asked.clean_start or self.expiry_s == 0.0

    @property
    def is_rival(self) -> bool:
        """It asked before the previous one was told: they came at once, and are told in any order."""
        previous = None if self.previous is None else self.previous.connected
        return previous is not None and self.asked.at < previous.at


@dataclass(slots=True, eq=False)
class Sent:
    """One message: where it was sent, and when it was answered. A will's is sent with its CONNECT."""

    message: Message
    topic: str
    qos: int
    retain: bool = False
    clears: bool = False
    is_will: bool = False
    expiry_s: float = -1.0
    delay_s: float = -1.0
    size: int = 0
    has_properties: bool = False
    connections: list[Connection] = field(default_factory=list)
    """Once for each time that it was sent."""
    place: int = 0
    """Of the last time, among all."""
    first_sent_at: float = FOREVER
    last_sent_at: float = 0.0
    sent_at: float = 0.0
    """The last time; at QoS 2 the first, for sent again it is the message that it was."""
    acknowledged_at: float = FOREVER
    refusals: int = 0

    @property
    def wait_s(self) -> float:
        return max(0.0, self.delay_s)

    @property
    def is_delayed(self) -> bool:
        return self.delay_s >= 0.0

    @property
    def due_at(self) -> float:
        """When it can come at the earliest."""
        return self.first_sent_at + self.wait_s

    @property
    def promised_at(self) -> float:
        return self.acknowledged_at + self.wait_s

    @property
    def had_no_effect(self) -> bool:
        """It was refused as often as it was sent."""
        return self.refusals >= len(self.connections) and self.acknowledged_at == FOREVER and not self.is_will


class Came(NamedTuple):
    """A delivery. `connections`: how many the life had had by then."""

    delivered: Delivered
    life: Life
    connections: int
    sent: Sent

    @property
    def is_kept(self) -> bool:
        """It was sent because its client subscribed, as what is retained."""
        return self.delivered.retained and not self.life.hears_as_published(self.delivered.topic)


@dataclass(slots=True, eq=False)
class Window:
    """A subscription while it holds: from SUBACK to UNSUBSCRIBE. `asked_at`: the last SUBSCRIBE before, if known."""

    filter: str
    qos: int
    no_local: bool
    since: float
    asked_at: float
    node: str = ""
    """Which said SUBACK."""
    as_published: bool = False
    identifier: int = 0
    until: float = FOREVER
    replaced_at: float = FOREVER
    """When the SUBACK came of another SUBSCRIBE of the same filter."""
    held_since: float = -FOREVER
    """Where another SUBSCRIBE replaced one that brought QoS 1 or 2, too, that one's [MQTT-3.8.4-4]; so is `node`."""

    def __post_init__(self) -> None:
        self.held_since = max(self.held_since, self.since)

    def follows(self, former: Window) -> None:
        """It replaces it."""
        former.until, former.replaced_at = self.asked_at, self.since
        if self.qos and former.qos and self.no_local == former.no_local:
            self.held_since, self.node = former.held_since, former.node

    @property
    def options(self) -> tuple[int, bool, bool, int]:
        """That another SUBSCRIBE may replace."""
        return self.qos, self.no_local, self.as_published, self.identifier

    @property
    def is_shared(self) -> bool:
        return is_shared(self.filter)

    @property
    def topic_filter(self) -> str:
        return topic_filter(self.filter)


@dataclass(slots=True, eq=False)
class Asking:
    """A subscription while it may hold: from SUBSCRIBE to UNSUBACK, or to the SUBACK that refuses it."""

    filter: str
    since: float
    last_at: float
    gone_at: float = FOREVER
    is_granted: bool = False
    qos: int = 0
    """The highest that was asked for."""
    sent: list[SubscribeSent] = field(default_factory=list)
    """All SUBSCRIBEs of it."""
    answered: int = 0
    """So many of them, the first ones, were answered, or never will be."""
    granted: list[SubscribeSent] = field(default_factory=list)

    def answer(self, connection: int) -> list[SubscribeSent]:
        """The SUBSCRIBE that is answered by this connection now: they are answered in order. None if it isn't known."""
        while self.answered < len(self.sent):
            self.answered += 1
            if self.sent[self.answered - 1].connection == connection:
                return [self.sent[self.answered - 1]]
        return []


@dataclass(eq=False)
class Life:
    client: str
    lasts: bool
    began_at: float
    is_new: bool
    """CONNACK said that no session was present: all its subscriptions are known."""
    connections: list[Connection]
    ended_at: float = FOREVER
    ended_by: Connection | None = None
    """Whose CONNACK said that it is gone."""
    excused: bool = False
    """Its end was nobody's fault: Redis had lost it."""
    tells: bool = False
    """Its client says when it sends SUBSCRIBE."""
    windows: list[Window] = field(default_factory=list)
    askings: list[Asking] = field(default_factory=list)
    came: list[Came] = field(default_factory=list)
    """But for what is retained."""
    held: dict[str, Window] = field(default_factory=dict)
    """Of each filter the window that is open."""
    asked: dict[str, Asking] = field(default_factory=dict)
    unsubscribed: set[str] = field(default_factory=set)
    """Since it sent SUBSCRIBE last."""
    as_published: dict[str, None] = field(default_factory=dict)
    """Filters that it ever asked for with Retain As Published, and without what is retained."""

    @cached_property
    def answers_at_once(self) -> bool:
        """Its client does, as far as anybody can see."""
        return not any(came.delivered.held_s for came in self.came)

    @property
    def left_at(self) -> float:
        """When its last connection ended."""
        return self._left_before[None]

    def left_before(self, connection: Connection) -> float:
        """When the last connection ended that it had before this one."""
        return self._left_before.get(connection, self.left_at)

    @cached_property
    def presence(self) -> list[tuple[float, float]]:
        """From when to when its client was connected."""
        spans: list[tuple[float, float]] = []
        for since, until in sorted((c.connected.at, c.until) for c in self.connections if c.connected is not None):
            if spans and since <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(until, spans[-1][1])
            else:
                spans.append((since, until))
        return spans

    def hears_as_published(self, topic: str) -> bool:
        """By a subscription that brings nothing that is retained: RETAIN says how it was published."""
        return any(matches(topic_filter(filter), topic) for filter in self.as_published)

    def may_be_too_large(self, sent: Sent) -> bool:
        """A client of its may not have been sent it."""
        size = sent.size + ENVELOPE_MAX_BYTES
        return any(0 < connection.asked.packet_max < size for connection in self.connections)

    def was_there(self, since: float, until: float) -> bool:
        """All the time."""
        i = bisect_right(self.presence, (since, FOREVER)) - 1
        return i >= 0 and self.presence[i][1] >= until

    @cached_property
    def absences(self) -> list[tuple[float, float]]:
        """From when to when it waited for its client."""
        ends = [*(since for since, _ in self.presence[1:]), self.ended_at]
        return [(left, back) for (_, left), back in zip(self.presence, ends, strict=True) if left < back]

    def passed_at(self, promised_at: float) -> float:
        """When first something came, not of QoS 0, that was due later: QoS 0 doesn't wait for a window."""
        dues, first_came = self._passing
        i = bisect_right(dues, promised_at)
        return first_came[i] if i < len(dues) else FOREVER

    def windows_on(self, topic: str) -> list[Window]:
        known = self._windows_on.get(topic)
        if known is None:
            known = [window for window in self.windows if matches(window.topic_filter, topic)]
            self._windows_on[topic] = known
        return known

    def askings_on(self, topic: str) -> list[Asking]:
        known = self._askings_on.get(topic)
        if known is None:
            known = [asking for asking in self.askings if matches(topic_filter(asking.filter), topic)]
            self._askings_on[topic] = known
        return known

    def ways(self, delivered: Delivered) -> tuple[str, ...]:
        """By which a message may have come: shared filters, or ORDINARY; one where the identifiers say which."""
        if delivered.filters:
            return tuple(filter(is_shared, delivered.filters)) or (ORDINARY,)
        known = self._ways.get(delivered.topic)
        if known is None:
            filters = [asking.filter for asking in self.askings_on(delivered.topic)]
            known = tuple(dict.fromkeys(f if is_shared(f) else ORDINARY for f in filters)) or (ORDINARY,)
            self._ways[delivered.topic] = known
        return known

    @cached_property
    def _left_before(self) -> dict[Connection | None, float]:
        known: dict[Connection | None, float] = {}
        left = -FOREVER
        for connection in self.connections:
            known[connection] = left
            left = max(left, connection.until)
        known[None] = left
        return known

    @cached_property
    def _passing(self) -> tuple[list[float], list[float]]:
        """When what came was due, in that order; when the first came of each and those behind it."""
        came = sorted(
            (c.sent.due_at, c.delivered.at)
            for c in self.came
            if c.delivered.qos and self.ways(c.delivered) == (ORDINARY,)
        )
        first = FOREVER
        first_came = [first := min(first, at) for _, at in reversed(came)]
        return [due_at for due_at, _ in came], first_came[::-1]

    @cached_property
    def _windows_on(self) -> dict[str, list[Window]]:
        return {}

    @cached_property
    def _askings_on(self) -> dict[str, list[Asking]]:
        return {}

    @cached_property
    def _ways(self) -> dict[str, tuple[str, ...]]:
        return {}
