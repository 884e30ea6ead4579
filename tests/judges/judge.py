"""Judges a history: what was promised to clients, and whether it was kept. Pure.

A *life* is one session of one client: it begins where CONNACK says that no session was present. A clean one ends with
its connection, one that lasts with the next CONNACK that says so again. What is judged of each life:

- Lost: a message that was sent `max_stale_s` after the SUBACK (and the slack of one busy process' clock), and
  acknowledged to its publisher, comes to a life that is still there at the end. A connection that ended may have
  had anything under way, so for a life that is over a gap counts: it never came, but by the same subscription a later
  one of its publisher's connection and topic.
- Duplicated: a QoS 2 message comes once to a life.
- Repeated: any message comes once to a connection whose session had no other and whose publisher sent it once.
- Reordered: the messages of a publisher and topic at one QoS come in their order, each seen where it came first; to a
  clean session, as far as one connection of the publisher goes: its next may be to a node with a shorter way, and
  what was sent on both may come by either. What was sent before the subscription, and again after it, comes late.

And of each client: whether CONNACK was right about the session; whether an older connection was closed when a newer
one was there. And of the nodes: whether their tables are the same once all is quiet, and empty when everybody left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

from load.history import (
    Acknowledged,
    AlarmMissing,
    AnyEvent,
    Asked,
    Closed,
    Connected,
    Delivered,
    FaultBegan,
    FaultEnded,
    Message,
    Published,
    RedisLost,
    RowsLeft,
    Subscribed,
    TablesStood,
    Unsubscribed,
    Unwell,
)

LOST: Final = "lost"
DUPLICATED: Final = "duplicated"
REORDERED: Final = "reordered"
REPEATED: Final = "repeated"
INVENTED: Final = "invented"
SESSION_PRESENT: Final = "session present"
TWO_CONNECTIONS: Final = "two connections"
DIGESTS: Final = "digests"
ROUTES_LEFT: Final = "routes left"
ALARM: Final = "alarm"
UNWELL: Final = "unwell"

FOREVER: Final = float("inf")


class Rules(NamedTuple):
    max_stale_s: float = 0.5
    clock_slack_s: float = 0.25
    """How much later than another event the one process that saw both may have seen one of them."""
    takeover_max_s: float = 6.0
    """How long two connections of one client may overlap while nothing keeps their nodes from hearing it."""


class Finding(NamedTuple):
    kind: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.at:.3f}: {self.text}"


@dataclass
class Verdict:
    acknowledged: int
    findings: list[Finding]

    def count(self, kind: str) -> int:
        return sum(finding.kind == kind for finding in self.findings)

    def by_kind(self) -> Counter[str]:
        return Counter(finding.kind for finding in self.findings)


# --- the story: the events gathered by what they are about ----------------------------------------------------------


@dataclass
class Connection:
    asked: Asked
    connected: Connected | None = None
    closed: Closed | None = None


@dataclass
class Sent:
    """One message: where it was sent, and when it was acknowledged."""

    message: Message
    topic: str
    qos: int
    connections: list[int] = field(default_factory=list)
    """Once for each time that it was sent."""
    first_sent_at: float = FOREVER
    sent_at: float = 0.0
    """The last time; at QoS 2 the first, for sent again it is the message that it was."""
    acknowledged_at: float = FOREVER


@dataclass
class Window:
    """A subscription while it holds."""

    filter: str
    qos: int
    since: float
    until: float = FOREVER


@dataclass
class Life:
    client: str
    lasts: bool
    began_at: float
    ended_at: float = FOREVER
    excused: bool = False
    """Its end was nobody's fault: Redis had lost it."""
    connections: int = 1
    windows: list[Window] = field(default_factory=list)
    delivered: list[tuple[Delivered, int]] = field(default_factory=list)
    """With how many connections the life had had by then."""


class Story:
    def __init__(self, events: Iterable[AnyEvent]) -> None:
        self.connections: dict[int, Connection] = {}
        self.sent: dict[Message, Sent] = {}
        self.lives: list[Life] = []
        self.faults: list[tuple[float, float, tuple[str, ...]]] = []
        self.lasting: set[str] = set()
        self.stood: dict[str, dict[str, TablesStood]] = defaultdict(dict)
        self.findings: list[Finding] = []
        self._life: dict[str, Life] = {}
        self._may_have_session: set[str] = set()
        self._redis_lost_at = -FOREVER
        self._running: dict[tuple[str, tuple[str, ...]], list[float]] = defaultdict(list)
        for event in events:
            self._take(event)
        for (_, nodes), begins in self._running.items():
            self.faults.extend((began, FOREVER, nodes) for began in begins)

    def found(self, kind: str, at: float, text: str) -> None:
        self.findings.append(Finding(kind, at, text))

    def _take(self, event: AnyEvent) -> None:
        match event:
            case Published():
                message = Message(event.client, event.number)
                sent = self.sent.setdefault(message, Sent(message, event.topic, event.qos))
                sent.connections.append(event.connection)
                sent.first_sent_at = min(sent.first_sent_at, event.at)
                if event.qos < 2 or len(sent.connections) == 1:
                    sent.sent_at = event.at
            case Acknowledged():
                sent = self.sent[Message(event.client, event.number)]
                sent.acknowledged_at = min(sent.acknowledged_at, event.at)
            case Delivered():
                self._delivered(event)
            case Asked():
                self.connections[event.connection] = Connection(event)
                if event.lasts:
                    self.lasting.add(event.client)
            case Connected():
                self._connected(event)
            case Closed():
                self._closed(event)
            case Subscribed():
                life = self._life[event.client]
                for window in life.windows:
                    if window.filter == event.filter and window.until == FOREVER:
                        break
                else:
                    life.windows.append(Window(event.filter, event.qos, event.at))
            case Unsubscribed():
                for window in self._life[event.client].windows:
                    if window.filter == event.filter:
                        window.until = min(window.until, event.at)
            case FaultBegan():
                self._running[event.kind, event.nodes].append(event.at)
            case FaultEnded():
                self.faults.append((self._running[event.kind, event.nodes].pop(), event.at, event.nodes))
            case RedisLost():
                self._redis_lost_at = event.at
            case TablesStood():
                self.stood[event.shard][event.node] = event
            case RowsLeft():
                if event.routes:
                    self.found(ROUTES_LEFT, event.at, f"{event.node} holds {event.routes} routes of nobody")
            case AlarmMissing():
                self.found(ALARM, event.at, event.what)
            case Unwell():
                self.found(UNWELL, event.at, f"{event.node}: {event.what}")

    def _connected(self, event: Connected) -> None:
        connection = self.connections[event.connection]
        connection.connected = event
        client, lasts = event.client, connection.asked.lasts
        old = self._life.get(client)
        if old is not None and old.ended_at == FOREVER:
            if event.present and lasts:
                old.connections += 1
                return
            old.ended_at = event.at
            old.excused = self._redis_lost_at >= old.began_at
            if lasts and not connection.asked.clean_start and not old.excused:
                self.found(SESSION_PRESENT, event.at, f"{client}'s session is gone, says {connection.asked.node}")
        elif event.present and not (lasts and client in self._may_have_session):
            self.found(SESSION_PRESENT, event.at, f"{client} has no session, but {connection.asked.node} has")
        if lasts:
            self._may_have_session.add(client)
        self._life[client] = life = Life(client, lasts, event.at)
        self.lives.append(life)

    def _closed(self, event: Closed) -> None:
        connection = self.connections.get(event.connection)
        if connection is None:
            return  # of the chapter before, whose node took its time
        connection.closed = event
        if connection.connected is None:
            if connection.asked.lasts:
                self._may_have_session.add(event.client)  # it may have come to CONNACK, without us
        elif not connection.asked.lasts:
            life = self._life[event.client]
            if life.began_at == connection.connected.at:
                life.ended_at = event.at

    def _delivered(self, event: Delivered) -> None:
        sent = self.sent.get(Message(event.publisher, event.number))
        if sent is None or sent.topic != event.topic:
            self.found(INVENTED, event.at, f"{event.client} got what {event.publisher} never sent: {event}")
        elif not event.retained:
            life = self._life[event.client]
            life.delivered.append((event, life.connections))


# --- the judgements -------------------------------------------------------------------------------------------------


Streams = dict[tuple[str, str], list[Sent]]
"""By publisher and topic: what was acknowledged, in that order."""


def judge(events: Sequence[AnyEvent], rules: Rules = Rules()) -> Verdict:  # noqa: B008
    story = Story(events)
    acknowledged = [sent for sent in story.sent.values() if sent.acknowledged_at < FOREVER]
    acknowledged.sort(key=_acknowledged_at)
    streams: Streams = defaultdict(list)
    for sent in acknowledged:
        streams[sent.message.publisher, sent.topic].append(sent)
    for life in story.lives:
        if not life.excused:
            _judge_losses(story, rules, life, streams)
        _judge_repeats(story, life)
        _judge_order(story, life)
    _judge_connections(story, rules)
    _judge_tables(story)
    return Verdict(len(acknowledged), sorted(story.findings, key=lambda finding: finding.at))


def _acknowledged_at(sent: Sent) -> float:
    return sent.acknowledged_at


def _judge_losses(story: Story, rules: Rules, life: Life, streams: Streams) -> None:
    came: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for delivered, _ in life.delivered:
        came[delivered.publisher, delivered.topic][delivered.number].append(delivered.at)
    for window in life.windows:
        since = window.since + rules.max_stale_s + rules.clock_slack_s
        until = min(window.until, life.ended_at)
        is_whole = window.until == FOREVER and (life.lasts or life.ended_at == FOREVER)
        for (publisher, topic), stream in streams.items():
            if not window.qos or not matches(window.filter, topic):
                continue
            numbers = came[publisher, topic]
            first, end = (bisect_left(stream, at, key=_acknowledged_at) for at in (since, until))
            due = (sent for sent in stream[first:end] if sent.qos and sent.sent_at >= since)
            missing = [sent for sent in due if sent.message.number not in numbers]
            for sent in missing:
                if is_whole or _was_passed(sent, stream, numbers, window.since, until):
                    text = f"{publisher} {sent.message.number} on {topic} (QoS {sent.qos}) never came to {life.client}"
                    story.found(LOST, sent.acknowledged_at, f"{text}, subscribed at {window.since:.3f}")


def _was_passed(sent: Sent, stream: Sequence[Sent], came: dict[int, list[float]], since: float, until: float) -> bool:
    """A later one of the same connection came by this subscription."""
    return any(
        other.message.number > sent.message.number
        and other.connections[-1] == sent.connections[-1]
        and any(since <= at < until for at in came.get(other.message.number, ()))
        for other in stream
    )


def _judge_repeats(story: Story, life: Life) -> None:
    first: dict[Message, int] = {}
    for delivered, connections in life.delivered:
        message = Message(delivered.publisher, delivered.number)
        if message not in first:
            first[message] = connections
            continue
        text = f"{delivered.publisher} {delivered.number} on {delivered.topic} came to {delivered.client} again"
        if delivered.qos == 2:
            story.found(DUPLICATED, delivered.at, text)
        elif first[message] == connections and len(story.sent[message].connections) == 1:
            story.found(REPEATED, delivered.at, f"{text}, at QoS {delivered.qos}, sent once")


def _judge_order(story: Story, life: Life) -> None:
    seen: set[Message] = set()
    last: dict[tuple[object, ...], int] = defaultdict(int)
    for delivered, _ in life.delivered:
        message = Message(delivered.publisher, delivered.number)
        if message in seen:
            continue
        seen.add(message)
        sent = story.sent[message]
        if len(sent.connections) > 1 and not _was_subscribed_throughout(sent, life, delivered.at):
            continue
        whole = life.lasts and delivered.publisher in story.lasting
        parts = [0] if whole else sent.connections
        stream = (delivered.publisher, delivered.topic, delivered.qos)
        if all(delivered.number < last[*stream, part] for part in parts):
            text = f"{delivered.publisher} {delivered.number} on {delivered.topic} came to {delivered.client}"
            story.found(REORDERED, delivered.at, f"{text} after {max(last[*stream, part] for part in parts)}")
        elif len(parts) == 1:
            last[*stream, parts[0]] = delivered.number


def _was_subscribed_throughout(sent: Sent, life: Life, at: float) -> bool:
    """By one subscription since it was sent first; else what was sent behind it may have come before its repeat."""
    windows = (window for window in life.windows if matches(window.filter, sent.topic))
    return any(window.since <= sent.first_sent_at and at <= window.until for window in windows)


def _judge_connections(story: Story, rules: Rules) -> None:
    """Each that was followed by another one of its client must have ended soon, as soon as its nodes could know."""
    of: dict[str, list[Connection]] = defaultdict(list)
    for connection in story.connections.values():
        if connection.connected is not None:
            of[connection.asked.client].append(connection)
    for client, connections in of.items():
        connections.sort(key=lambda connection: connection.connected.at if connection.connected else 0.0)
        for older, newer in pairwise(connections):
            assert newer.connected is not None
            due = _free_since(story, newer.connected.at, {older.asked.node, newer.asked.node}) + rules.takeover_max_s
            if (FOREVER if older.closed is None else older.closed.at) > due:
                text = f"{client}'s on {older.asked.node} was there {due - newer.connected.at:.1f} s after it came to"
                story.found(TWO_CONNECTIONS, newer.connected.at, f"{text} {newer.asked.node}")


def _free_since(story: Story, at: float, nodes: set[str]) -> float:
    """From when on, at or after `at`, no fault kept one of the nodes from hearing."""
    for began, ended, touched in sorted(story.faults):
        if began <= at + 1.0 and ended >= at and nodes & set(touched):
            at = ended
    return at


def _judge_tables(story: Story) -> None:
    for shard, by_node in story.stood.items():
        states = {(stood.applied, tuple(sorted(stood.digests.items()))) for stood in by_node.values()}
        if len(states) > 1:
            told = ", ".join(f"{node} {stood.applied} {stood.digests}" for node, stood in sorted(by_node.items()))
            story.found(DIGESTS, next(iter(by_node.values())).at, f"shard {shard}: {told}")


@cache
def matches(filter: str, topic: str) -> bool:
    """Of MQTT's section 4.7, what campaigns use: no $-topics."""
    levels, names = filter.split("/"), topic.split("/")
    for level, name in zip(levels, names, strict=False):
        if level == "#":
            return True
        if level not in ("+", name):
            return False
    return len(levels) == len(names) or (len(levels) == len(names) + 1 and levels[-1] == "#")
