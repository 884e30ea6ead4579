"""The story: a history's events gathered by what they are about, once, for all judges. It judges nothing.

What always holds: an event is with the connection, the life, the message or the filter that it is of; those that are
of none of these stand by their kind (`all`). Events keep the order in which they were seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from judges.faults import Fault, Faults
from judges.life import Asking, Came, Connection, Life, Sent, Window
from judges.moved_data import moved_losses
from judges.topics import EXCLUSIVE, below, is_unsaid, matches, overlap, topic_filter
from judges.verdict import FOREVER
from load.history import (
    Acknowledged,
    AnyEvent,
    Asked,
    Banned,
    ChangeAsked,
    Closed,
    Connected,
    Delivered,
    Disconnected,
    FaultBegan,
    FaultEnded,
    Message,
    NodeSeen,
    Published,
    PublishRefused,
    RedisLost,
    Refused,
    RetainedStood,
    RulesChanged,
    Subscribed,
    SubscribeRefused,
    SubscribeSent,
    Unsubscribed,
    UnsubscribeDone,
)

LATE_CONNECT_MAX_S: Final = 30.0
"""A node that stood still may take a CONNECT so long after its client gave up."""

EXPIRED_UNSEEN_S: Final = 5.0
"""A session may have expired so long before its client, which saw the end of its connection late, can know."""

About = Subscribed | SubscribeRefused | SubscribeSent | UnsubscribeDone
LockEvent = About | Unsubscribed
Kind = TypeVar("Kind")


class Story:
    def __init__(self, events: Iterable[AnyEvent], ended_at: float = -FOREVER, cores: int = 3) -> None:
        """`ended_at`: nothing else came until then; `cores`: that the cluster has."""
        self.connections: dict[int, Connection] = {}
        self.by_client: dict[str, list[Connection]] = defaultdict(list)
        """In the order in which they asked."""
        self.sent: dict[Message, Sent] = {}
        self.by_topic: dict[str, list[Sent]] = defaultdict(list)
        self.lives: list[Life] = []
        self.durable: set[str] = set()
        """Clients that ever asked for a durable session."""
        self.came: dict[Message, list[Came]] = defaultdict(list)
        """But for what is retained."""
        self.retained: list[Came] = []
        self.invented: list[Delivered] = []
        self.locks: dict[str, list[tuple[LockEvent, Life]]] = defaultdict(list)
        """Of exclusive filters."""
        self.changes: list[ChangeAsked | Banned | RulesChanged] = []
        self.denied: set[str] = set()
        """Prefixes that ever were, or may have been."""
        self.looks: list[list[RetainedStood]] = []
        """At what is retained: those between which nothing was."""
        self.ended_at = ended_at
        self._others: dict[type, list[Any]] = defaultdict(list)
        self._life: dict[str, Life] = {}
        self._unanswered: dict[str, list[Connection]] = defaultdict(list)
        self._redis_lost_at = -FOREVER
        self._place = 0
        self._is_looking = False
        self._faults: list[Fault] = []
        self._running: dict[tuple[str, tuple[str, ...]], list[float]] = defaultdict(list)
        self._topics_of: dict[str, list[str]] = {}
        self._meant_for: dict[Life, list[Sent]] = {}
        self._arrived_for: dict[Life, list[float]] = {}
        for event in events:
            take = self._takes.get(type(event))
            self._others[type(event)].append(event) if take is None else take(self, event)
            self.ended_at = max(self.ended_at, event.at)
        for (kind, nodes), begins in self._running.items():
            self._faults.extend(Fault(began, FOREVER, kind, nodes) for began in begins)
        self.faults = Faults(self._faults, cores)
        self.moved_losses = moved_losses(self._faults, self.all(RedisLost), self.all(NodeSeen))
        """Of Redis' data while slots moved."""

    def all(self, kind: type[Kind]) -> list[Kind]:
        """The events of a kind that is of no connection, message or filter."""
        return self._others.get(kind, [])

    def topics_of(self, filter: str) -> list[str]:
        """What of a filter's topics was published to."""
        filter = topic_filter(filter)
        known = self._topics_of.get(filter)
        if known is None:
            known = self._topics_of[filter] = [topic for topic in self.by_topic if matches(filter, topic)]
        return known

    def meant_for(self, life: Life) -> list[Sent]:
        """What was published to its subscriptions' topics at any time, in the order in which it was due."""
        known = self._meant_for.get(life)
        if known is None:
            topics = {topic for window in life.windows for topic in self.topics_of(window.filter)}
            meant = [sent for topic in topics for sent in self.by_topic[topic]]
            known = self._meant_for[life] = sorted(meant, key=lambda sent: sent.due_at)
        return known

    def arrived_for(self, life: Life) -> list[float]:
        """Of each of those messages, in order, by when it had come to where it waits for that client."""
        known = self._arrived_for.get(life)
        if known is None:
            meant = self.meant_for(life)
            known = self._arrived_for[life] = sorted(sent.promised_at if sent.qos else sent.due_at for sent in meant)
        return known

    def lost_by_redis(self, since: float, until: float) -> bool:
        return any(since <= lost.at <= until for lost in self.all(RedisLost))

    # --- connections --------------------------------------------------------------------------------------------------

    def _asked(self, event: Asked) -> None:
        others = self.by_client[event.client]
        connection = self.connections[event.connection] = Connection(event, len(others))
        others.append(connection)
        self._unanswered[event.client].append(connection)
        if event.lasts:
            self.durable.add(event.client)
        if event.will is not None:
            will = event.will
            sent = Sent(Message(f"{event.client}!", will.number), will.topic, will.qos, will.retain, is_will=True)
            sent.has_properties = event.version == 5
            sent.connections.append(connection)
            sent.first_sent_at = sent.last_sent_at = sent.sent_at = event.at
            self._send(sent)

    def _connected(self, event: Connected) -> None:
        connection = self.connections[event.connection]
        connection.connected = event
        client, asked = event.client, connection.asked
        connection.unsure = self._unanswered_but(connection, event.at)
        old = connection.before = self._life.get(client)
        if old is not None:
            connection.previous = old.connections[-1]
            connection.was_over = old.ended_at < FOREVER
        if old is not None and old.ended_at == FOREVER:
            is_rival = connection.is_rival
            began_it = is_rival and asked.lasts and not old.is_new
            may_be_another = any(other.may_end for other in connection.unsure) or _may_be_begun_anew(connection, old)
            if began_it or (event.present and not may_be_another):
                old.is_new |= not event.present
                old.connections.append(connection)
                connection.life = old
                return
            if asked.lasts or not is_rival:
                old.ended_at, old.ended_by = event.at, connection
                old.excused = event.present or self._redis_lost_at >= old.began_at
        life = Life(client, asked.lasts, event.at, not event.present, [connection])
        connection.life = self._life[client] = life
        self.lives.append(life)

    def _unanswered_but(self, connection: Connection, at: float) -> list[Connection]:
        """The others of its client that asked and got no answer, but may have been heard, or be heard yet."""
        asked = self._unanswered[connection.asked.client]
        unsure = [other for other in asked if other.connected is None and not other.is_refused]
        asked[:] = [other for other in unsure if other.until > at - LATE_CONNECT_MAX_S]
        return unsure

    def _refused(self, event: Refused) -> None:
        self.connections[event.connection].is_refused = True
        self._others[Refused].append(event)

    def _disconnected(self, event: Disconnected) -> None:
        self.connections[event.connection].disconnected = event

    def _closed(self, event: Closed) -> None:
        connection = self.connections.get(event.connection)
        if connection is None:
            return  # of the chapter before, whose node took its time
        connection.closed = event
        connection.asked_by_then = len(self.by_client[event.client])
        life = connection.life
        if life is not None and life.connections[-1] is connection and connection.expiry_s == 0.0:
            life.ended_at = min(life.ended_at, event.at)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _published(self, event: Published) -> None:
        message = Message(event.client, event.number)
        sent = self.sent.get(message)
        if sent is None:
            sent = Sent(
                message, event.topic, event.qos, event.retain, event.clears,
                expiry_s=event.expiry_s, delay_s=event.delay_s, size=event.size, has_properties=event.has_properties,
            )  # fmt: skip
            self._send(sent)
        sent.connections.append(self.connections[event.connection])
        self._place += 1
        sent.place = self._place
        self._is_looking &= not event.retain
        sent.first_sent_at = min(sent.first_sent_at, event.at)
        sent.last_sent_at = event.at
        if event.qos < 2 or len(sent.connections) == 1:
            sent.sent_at = event.at

    def _send(self, sent: Sent) -> None:
        self.sent[sent.message] = sent
        self.by_topic[sent.topic].append(sent)

    def _acknowledged(self, event: Acknowledged) -> None:
        sent = self.sent[Message(event.client, event.number)]
        sent.acknowledged_at = min(sent.acknowledged_at, event.at)

    def _publish_refused(self, event: PublishRefused) -> None:
        self.sent[Message(event.client, event.number)].refusals += 1
        self._others[PublishRefused].append(event)

    def _delivered(self, event: Delivered) -> None:
        message = Message(event.publisher, event.number)
        sent = self.sent.get(message)
        if sent is None or sent.topic != event.topic:
            self.invented.append(event)
            return
        life = self.connections[event.connection].life
        assert life is not None, f"{event.client} got a message before CONNACK"
        came = Came(event, life, len(life.connections), sent)
        if came.is_kept:
            self.retained.append(came)
        else:
            life.came.append(came)
            self.came[message].append(came)

    # --- what an operator did, and saw --------------------------------------------------------------------------------

    def _changed(self, event: ChangeAsked | Banned | RulesChanged) -> None:
        self.changes.append(event)
        if isinstance(event, RulesChanged) and event.is_denied:
            self._deny(event.prefix, event.at)
        elif isinstance(event, ChangeAsked) and event.what == "deny":
            self._deny(event.of, event.at)

    def _deny(self, prefix: str, at: float) -> None:
        """From now on subscriptions below it may end, and nobody tells their clients."""
        self.denied.add(prefix)
        for life in self.lives:
            if is_unsaid(prefix):
                break
            ended = [filter for filter in life.held if overlap(below(prefix), topic_filter(filter))]
            for filter in ended if life.ended_at == FOREVER else ():
                life.held.pop(filter).until = at

    def _retained_stood(self, event: RetainedStood) -> None:
        if not self._is_looking:
            self.looks.append([])
            self._is_looking = True
        self.looks[-1].append(event)

    # --- subscriptions ------------------------------------------------------------------------------------------------

    def _life_of(self, event: About) -> Life:
        """Of several connections at once the client goes on with the one by which it says something."""
        life = self.connections[event.connection].life
        assert life is not None, f"{event.client} subscribed before CONNACK"
        self._life[event.client] = life
        self._note_lock(event, life)
        return life

    def _note_lock(self, event: LockEvent, life: Life) -> None:
        if event.filter.startswith(EXCLUSIVE):
            self.locks[event.filter].append((event, life))

    def _subscribe_sent(self, event: SubscribeSent) -> None:
        life = self._life_of(event)
        life.tells = True
        asking = life.asked.get(event.filter)
        if asking is None:
            asking = life.asked[event.filter] = Asking(event.filter, event.at, event.at)
            life.askings.append(asking)
        asking.last_at = event.at
        asking.qos = max(asking.qos, event.qos)
        asking.sent.append(event)
        life.unsubscribed.discard(event.filter)
        if event.as_published and event.retain_handling == 2:
            life.as_published[event.filter] = None

    def _subscribed(self, event: Subscribed) -> None:
        life = self._life_of(event)
        asking = life.asked.get(event.filter)
        if asking is None:
            asking = life.asked[event.filter] = Asking(event.filter, life.began_at, event.at)
            life.askings.append(asking)
        if not life.tells:
            asking.last_at = event.at
        asking.is_granted = True
        asking.qos = max(asking.qos, event.qos)
        asking.granted += asking.answer(event.connection)
        former = life.held.get(event.filter)
        if former is not None and former.options == _options(event):
            return
        node = self.connections[event.connection].asked.node
        window = Window(event.filter, event.qos, event.no_local, event.at, asking.last_at, node, *_options(event)[2:])
        if former is not None:
            window.follows(former)
        life.held[event.filter] = window
        life.windows.append(window)

    def _subscribe_refused(self, event: SubscribeRefused) -> None:
        life = self._life_of(event)
        self._others[SubscribeRefused].append(event)
        asking = life.asked.get(event.filter)
        if asking is not None:
            asking.answer(event.connection)
        if asking is not None and not asking.is_granted:
            asking.gone_at = event.at
            del life.asked[event.filter]

    def _unsubscribed(self, event: Unsubscribed) -> None:
        life = self._life.get(event.client)
        if life is None:
            return
        self._note_lock(event, life)
        life.unsubscribed.add(event.filter)
        window = life.held.pop(event.filter, None)
        if window is not None:
            window.until = event.at

    def _unsubscribe_done(self, event: UnsubscribeDone) -> None:
        life = self._life_of(event)
        self._others[UnsubscribeDone].append(event)
        asking = life.asked.get(event.filter)
        if asking is not None and event.filter in life.unsubscribed:
            asking.gone_at = event.at
            del life.asked[event.filter]

    # --- faults -------------------------------------------------------------------------------------------------------

    def _fault_began(self, event: FaultBegan) -> None:
        self._running[event.kind, event.nodes].append(event.at)

    def _fault_ended(self, event: FaultEnded) -> None:
        began = self._running[event.kind, event.nodes].pop()
        self._faults.append(Fault(began, event.at, event.kind, event.nodes))

    def _redis_lost(self, event: RedisLost) -> None:
        self._redis_lost_at = event.at
        self._others[RedisLost].append(event)

    _takes: Final[dict[type, Callable[[Story, Any], None]]] = {
        Published: _published,
        Acknowledged: _acknowledged,
        PublishRefused: _publish_refused,
        Delivered: _delivered,
        Asked: _asked,
        Connected: _connected,
        Refused: _refused,
        Disconnected: _disconnected,
        Closed: _closed,
        SubscribeSent: _subscribe_sent,
        Subscribed: _subscribed,
        SubscribeRefused: _subscribe_refused,
        Unsubscribed: _unsubscribed,
        UnsubscribeDone: _unsubscribe_done,
        FaultBegan: _fault_began,
        FaultEnded: _fault_ended,
        RedisLost: _redis_lost,
        ChangeAsked: _changed,
        Banned: _changed,
        RulesChanged: _changed,
        RetainedStood: _retained_stood,
    }


def _options(event: Subscribed) -> tuple[int, bool, bool, int]:
    return event.qos, event.no_local, event.as_published, event.identifier


def _may_be_begun_anew(connection: Connection, old: Life) -> bool:
    """The session expired while its client was away, and a CONNECT that nobody answered began another."""
    assert connection.connected is not None
    away_s = connection.connected.at - max(former.until for former in old.connections)
    expired = away_s >= old.connections[-1].expiry_s - EXPIRED_UNSEEN_S
    return expired and any(other.asked.lasts for other in connection.unsure)
