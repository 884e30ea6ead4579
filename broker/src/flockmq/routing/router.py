"""The router: from a topic to its receivers on this node, other nodes and slots.

It owns the filter indexes (`local`: subscriptions of this node; `remote`: of peers) and the cache of `matches`.
`delivery` sends messages to this node's own sessions. No I/O: the reactor flushes the sinks and sets the time.
Invariants: a cached fan-out equals what the indexes would return now, without detached sessions. Each session gets a
message once.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from flockmq.bounds import (
    FANOUTS_MAX,
    FANOUTS_MAX_TARGETS,
    MATCH_CACHE_FANOUT_BYTES,
    MATCH_CACHE_MAX_BYTES,
    MATCH_CACHE_TARGET_BYTES,
    MATCHED_AGAIN_MAX,
    TOPIC_MAX_LEVELS,
)
from flockmq.mqtt.message import Publish, transcode_run
from flockmq.mqtt.topics import is_exclusive, is_reserved, is_shared, is_unpublishable, matching, unwrap
from flockmq.routing import fanout
from flockmq.routing.back_pressure import PausablePublisher, PublisherPauses
from flockmq.routing.fanout import Fanout
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.group import MembersElsewhere
from flockmq.routing.local_delivery import LocalDelivery
from flockmq.routing.match_cache import Head, MatchCache, Route
from flockmq.routing.partial_packets import PartialPackets
from flockmq.routing.shared_delivery import SharedDelivery
from flockmq.routing.sink import FLOWING, AwaySink, SinkHost
from flockmq.routing.stale_table_queue import StaleTableQueue
from flockmq.routing.subscriber import Subscriber, Subscription
from flockmq.routing.targets import SlotDispatcher, SlotSet


class Router:
    """One per node. The fast path takes no packets larger than `max_packet_size` or topics deeper than
    `max_topic_levels` (the smallest values of all zones), nor topics that match `intercepts`: hooks and rules see
    those first. `dispatcher` sends messages to the owners of durable sessions. `seed`: for choosing members of
    shared subscriptions; None: the system's. `match_cache_bytes` bounds `matches`.

    `stale`: the routing tables may be too old to match QoS 1 and 2 messages. `held`: the clients' queues that wait for
    newer tables.
    """

    def __init__(
        self,
        host: SinkHost,
        max_packet_size: int,
        max_topic_levels: int = TOPIC_MAX_LEVELS,
        seed: int | None = None,
        match_cache_bytes: int = MATCH_CACHE_MAX_BYTES,
    ) -> None:
        self.host = host
        self.counters = host.counters
        self.turn = host.turn
        self.matches = MatchCache(match_cache_bytes)
        self.max_packet_size = max_packet_size
        self.max_topic_levels = max_topic_levels
        self.intercepts = FilterIndex()
        self.has_intercepts: bool = False
        self.intercepts_subscriptions: bool = False
        self.local = FilterIndex()
        self.remote = FilterIndex()
        self.pauses = PublisherPauses(host)
        self.delivery = LocalDelivery(host, self.pauses)
        self.shared = SharedDelivery(self.delivery, self.changed, seed)
        self.dispatcher: SlotDispatcher | None = None
        self._forget()
        self.receivers: i64 = 0
        """Of all messages that were routed: what that cost. `Conversation` bounds it for each read."""
        self.partials = PartialPackets()
        self.stale: bool = False
        self.held = StaleTableQueue()
        self.away4 = AwaySink(host, 4)
        self.away5 = AwaySink(host, 5)

    # The indexes.

    def add(self, subscription: Subscription) -> None:
        if is_shared(subscription.filter):
            self.shared.add(subscription)
            return
        filter = matching(subscription.filter)
        self.local.add(filter, subscription)
        self.changed(filter)

    def remove(self, subscription: Subscription) -> None:
        if is_shared(subscription.filter):
            self.shared.remove(subscription)
            return
        filter = matching(subscription.filter)
        self.local.remove(filter, subscription)
        self.changed(filter)

    def began(self, subscription: Subscription) -> None:
        """The session didn't have this filter before."""
        self.counters.subscriptions += 1
        usage = subscription.session.usage
        if usage is not None:
            usage.subscribed(subscription.filter)

    def ended(self, subscription: Subscription) -> None:
        self.counters.subscriptions -= 1
        usage = subscription.session.usage
        if usage is not None:
            usage.unsubscribed(subscription.filter)

    def has_local(self, filter: bytes) -> bool:
        """True if a client of this node subscribes to exactly this filter. For an exclusive filter always False: no
        other client can have it.
        """
        if is_shared(filter):
            return self.shared.has(filter)
        return not is_exclusive(filter) and filter in self.local

    def detach(self, session: Subscriber) -> None:
        """The session has ended, and its filters are removed later: from now on it is in no fan-out."""
        session.is_detached = True
        self._forget()

    def is_unwanted(self, subscription: Subscription) -> bool:
        """True if, after its removal, no other subscription here has the same filter."""
        return not self.has_local(subscription.filter)

    def sink_changed(self, session: Subscriber) -> None:
        """Messages reach the session in another way, because its client connected or disconnected: match its filters
        again, but for the shared ones (`member_moved`).
        """
        own = len(session.subscriptions) - session.subscriptions.shared
        if own > MATCHED_AGAIN_MAX:
            self._forget()
        elif own:
            for subscription in session.subscriptions.all():
                if not is_shared(subscription.filter):
                    self.changed(matching(subscription.filter))

    def member_moved(self, member: Subscription) -> None:
        """The client of a shared subscription's member connected or disconnected."""
        self.shared.moved(member)

    def intercept(self, filters: list[bytes]) -> None:
        """Messages that match these filters, and no others, must not take the fast path: hooks or rules see them
        first.
        """
        self.intercepts = FilterIndex()
        self.has_intercepts = bool(filters)
        for filter in filters:
            self.intercepts.add(filter, True)
        self._forget()

    def is_intercepted(self, topic: bytes) -> bool:
        """True for an intercepted topic. A delayed message is checked when it arrives, by the topic after
        `$delayed/seconds/`.
        """
        return self.has_intercepts and len(self.intercepts.match(unwrap(topic)[1])) > 0

    def refuses(self, topic: bytes) -> bool:
        """True if no client may publish to this topic. Topics that begin with `$` are allowed if something intercepts
        them.
        """
        return is_unpublishable(topic) and (is_reserved(topic) or not self.is_intercepted(topic))

    def replace_remote(self, remote: FilterIndex) -> None:
        """Replace the index of other nodes' filters, after a bootstrap."""
        self.remote = remote
        self._forget()

    def replace_shared(self, index: FilterIndex, elsewhere: dict[bytes, MembersElsewhere]) -> None:
        """Replace what is known of members of shared subscriptions on other nodes."""
        self.shared.replace_remote(index, elsewhere)
        self._forget()

    def _forget(self) -> None:
        self.matches.clear()
        self._forget_fanouts()

    def _forget_fanouts(self) -> None:
        """New matches share new fan-outs from now on; existing fan-outs stay valid."""
        self._fanouts: dict[tuple[object, ...], Fanout] = {}
        self._fanouts_targets: int = 0

    def changed(self, filter: bytes) -> None:
        """A filter was added to or removed from an index."""
        self.matches.filter_changed(filter)
        if self._fanouts:
            self._forget_fanouts()

    def knows(self, topic: bytes) -> bool:
        """The topic was routed before, so its name is valid."""
        return topic in self.matches.routes

    def route(self, topic: bytes) -> Route:
        """The route of a valid topic name."""
        known = self.matches.routes.get(topic)
        if known is not None:
            self.receivers += known.fanout.receivers
            return known
        matched = self.local.match(topic) + self.remote.match(topic)
        if self.shared.groups or self.shared.elsewhere:
            matched += self.shared.match(topic)
        key = tuple(matched)
        self.receivers += len(matched)
        fan = self._fanouts.get(key)
        more_bytes = 0
        if fan is None:
            fan = self._new_fanout(key)
            more_bytes = MATCH_CACHE_FANOUT_BYTES + MATCH_CACHE_TARGET_BYTES * len(matched)
        self.receivers += fan.receivers
        route = Route(fan)
        self.matches.put(topic, route, more_bytes)
        return route

    def _new_fanout(self, matched: tuple[object, ...]) -> Fanout:
        fan = fanout.build(matched)
        if fan.groups and self.shared.is_elsewhere(fan.groups):
            fan.crosses = True
        if len(self._fanouts) >= FANOUTS_MAX or self._fanouts_targets >= FANOUTS_MAX_TARGETS:
            self._forget_fanouts()
        self._fanouts[matched] = fan
        self._fanouts_targets += 1 + len(matched)
        return fan

    def remember_head(self, heads: dict[bytes, Head], head: bytes, topic: bytes, length: int) -> Head:
        """The head of a packet of `length` bytes, which is remembered if the topic's route is."""
        route = self.route(topic)
        known = Head(length, route.fanout)
        self.matches.put_head(heads, head, known, route)
        return known

    # Messages.

    def emit(self, fan: Fanout, chunk: bytes, version: int, count: int, publisher: PausablePublisher | None) -> None:
        """Deliver a run of `count` QoS 0 packets without properties. `publisher` None: it came from another node."""
        counters = self.counters
        self.receivers += fan.receivers
        if publisher is None:
            counters.messages_arrived += count
        else:
            counters.messages_received += count
            publisher.messages_in += count
        same = fan.sinks5 if version == 5 else fan.sinks4
        other = fan.sinks4 if version == 5 else fan.sinks5
        if self.pauses.slow:
            self.delivery.emit_carefully(same, chunk, count, publisher)
        else:
            for sink in same:
                sink.put(chunk)
                sink.messages_out += count
        counters.messages_sent += count * len(same)
        if other:
            transcoded = transcode_run(chunk, 4 if version == 5 else 5)
            self.delivery.emit_carefully(other, transcoded, count, publisher)
            counters.messages_sent += count * len(other)
        if fan.special:
            self.delivery.emit_special(fan.special, chunk, version, publisher)
        if publisher is not None and fan.peers:
            for peer in fan.peers:
                peer.put_run(version, chunk)
                if peer.flow != FLOWING:
                    self.pauses.pause(peer, publisher)
            counters.messages_forwarded += count * len(fan.peers)
        if publisher is not None:
            if fan.slots is not None:
                dispatcher = self._dispatcher_for(fan.slots, publisher)
                dispatcher.put_run(fan.slots, version, chunk, publisher.client_id() if version == 5 else b"")
            for group in fan.groups:
                self.shared.emit(group, chunk, version, count, publisher)

    def forward(
        self, fan: Fanout, message: Publish, on_accepted: Callable[[], None], publisher: PausablePublisher | None = None
    ) -> int:
        """Forward one message to the other nodes, slot owners and groups of a fan-out. Returns how many times
        `on_accepted` will be called; -1: some link, queue or group has no room, but the others have the message. A
        QoS 2 message is forwarded only where all have room (`fanout_with_room`). What the log has is not refused.
        """
        waits = self.forward_to_all(fan, message, on_accepted, publisher)
        refused = waits < 0
        for group in fan.groups:
            asked = self.shared.dispatch(group, message, publisher, on_accepted)
            if asked >= 0:
                waits += asked
            # Forwarding it filled this group. The others, or the log, have the message, so it is retried for the group.
            elif message.qos == 2 or message.must_be_logged():
                self.shared.on_refused(group, message, on_accepted)
                waits += 1
            else:
                refused = True
        return -1 if refused else waits

    def may_refuse(self, message: Publish) -> bool:
        """True if this message may be sent only after all receivers are known to have room. This is so at QoS 2: if it
        were refused after some receivers got it, the client would send it again as a new message, and they would get it
        twice. It is also so while Redis is short of memory, because a refused message must have no effect.
        """
        return message.qos == 2 or (message.qos > 0 and self.dispatcher is not None and self.dispatcher.is_short)

    def fanout_with_room(self, message: Publish, publisher: PausablePublisher) -> Fanout | None:
        """The fan-out of such a message; None: some link, queue or group has no room, and nobody may get it. If a group
        has no room, its local members with full queues are disconnected, as a delivery would do.
        """
        fan = self.route(message.topic).fanout
        if fan.groups:
            if not self.shared.make_room(fan.groups, message):
                return None
            fan = self.route(message.topic).fanout  # The disconnected members are gone.
        if publisher.protocol_version == 5:
            message.publisher = publisher.client_id()
        can_be_refused = publisher.protocol_version == 5
        return fan if self.has_room(fan, message, can_be_refused=can_be_refused) else None

    def has_room(self, fan: Fanout, message: Publish, *, can_be_refused: bool = True) -> bool:
        """True if all links and queues of the fan-out would accept this message now. `can_be_refused` as in
        `SlotDispatcher.takes`.
        """
        if message.qos == 0:
            return True
        for peer in fan.peers:
            if not peer.takes(len(message.origin) + len(message.packet)):
                return False
        if fan.slots is None:
            return True
        return self._dispatcher_for(fan.slots, None).takes(fan.slots, message, can_be_refused=can_be_refused)

    def forward_to_all(
        self, fan: Fanout, message: Publish, on_accepted: Callable[[], None], publisher: PausablePublisher | None = None
    ) -> int:
        """As `forward`, without the groups."""
        waits = 0
        refused = False
        self.counters.messages_forwarded += len(fan.peers)
        for peer in fan.peers:
            if message.qos == 0:
                peer.put_run(message.version, message.packet)
            elif not peer.put_message(message, on_accepted, is_awaited=publisher is not None):
                self.counters.dropped_no_room += 1
                refused = True
            else:
                waits += 1
        if fan.slots is not None:
            dispatcher = self._dispatcher_for(fan.slots, publisher)
            if publisher is not None and publisher.protocol_version == 5:
                message.publisher = publisher.client_id()  # for No Local at durable sessions
            if message.qos == 0:
                dispatcher.put_run(fan.slots, message.version, message.packet, message.publisher)
            elif (asked := dispatcher.put_acknowledged(fan.slots, message, on_accepted)) < 0:
                self.counters.dropped_no_room += 1
                refused = True
            else:
                waits += asked
        return -1 if refused else waits

    def _dispatcher_for(self, slots: SlotSet, publisher: PausablePublisher | None) -> SlotDispatcher:
        dispatcher = self.dispatcher
        assert dispatcher is not None
        if dispatcher.congested and publisher is not None:
            for slow in dispatcher.slow_queues(slots, publisher.client_id()):
                self.pauses.pause(slow, publisher)
        return dispatcher

    def resume_held(self, most: int) -> bool:
        """The tables are no longer stale: process the queues of at most `most` clients. Returns True if more wait."""
        held = self.held
        for _ in range(most):
            if self.stale or not held.queues:
                break
            held.take_first().advance()
        return len(held.queues) > 0 and not self.stale
