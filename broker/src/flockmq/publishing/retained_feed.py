"""Retained messages: the `messages` table by topic, and how a new subscription gets the matching ones [MQTT-3.3.1-9].

Invariants: a client gets retained messages no faster than it reads them, and none for a subscription that was removed.
In each event-loop iteration as much is sent as fits a time slice, to all sessions together, users in turn; at most one
task works for a session. A message that changes after the node has the complete table is left out: it is delivered
live, by the route that was written before.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, Self

from flockmq.bounds import (
    RETAINED_BACK_S,
    RETAINED_FEED_TOPICS,
    RETAINED_LIVE_MAX_TOPICS,
    RETAINED_MESSAGE_BYTES,
    SINK_DRAINED_BYTES,
)
from flockmq.clock import Clock
from flockmq.mqtt.message import Publish, publication, with_expiry
from flockmq.mqtt.topics import matching
from flockmq.quotas import StoredBytes
from flockmq.rlog.schema import RetainedMessage
from flockmq.routing.retained_index import RetainedIndex
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscriber, Subscription
from flockmq.user_turns import UserTurns

_ROOM_MIN_S: Final = 0.005
_ROOM_MAX_S: Final = 0.25
"""How often a slow client is checked again: less and less often."""


def _size(row: object) -> int:
    assert isinstance(row, RetainedMessage)
    return len(row.payload) + len(row.properties)


def stored_bytes(topic: bytes, row: RetainedMessage) -> int:
    """The bytes that count for the user's quota."""
    return RETAINED_MESSAGE_BYTES + len(topic) + len(row.payload) + len(row.properties)


class RetainedFeed:
    """Listens to `messages`. `expiring`: topic → when its message expires, in ms of the cluster's time."""

    def __init__(self, stored: StoredBytes | None = None) -> None:
        """`stored`: how much users have stored."""
        self.stored = StoredBytes() if stored is None else stored
        self.index = RetainedIndex(_size)
        self.expiring: dict[bytes, int] = {}
        self.pending: set[PendingRetained] = set()
        self._changed: OrderedDict[bytes, int] = OrderedDict()
        """The last topics that changed while any subscription was pending, with the number of each change."""
        self._changes = 0

    def put(self, key: bytes, value: RetainedMessage, old: RetainedMessage | None) -> None:
        self._count(key, old, -1)
        self._count(key, value, 1)
        if value.payload:
            self.index.put(key, value)
        else:
            self.index.remove(key)
        if value.expires_ms:
            self.expiring[key] = value.expires_ms
        elif self.expiring:
            self.expiring.pop(key, None)
        if self.pending:
            self._changes += 1
            self._changed[key] = self._changes
            self._changed.move_to_end(key)
            if len(self._changed) > RETAINED_LIVE_MAX_TOPICS:
                self._changed.popitem(last=False)

    def delete(self, key: bytes, old: RetainedMessage) -> None:
        self._count(key, old, -1)
        self.index.remove(key)
        self.expiring.pop(key, None)

    def _count(self, topic: bytes, row: RetainedMessage | None, times: int) -> None:
        if row is not None and row.user is not None:
            self.stored.change(row.user, times * stored_bytes(topic, row))

    def add_pending(self, subscription: Subscription, saw_all: bool) -> PendingRetained:
        """Register that the subscription still has to get retained messages, until it is `settled`."""
        pending = PendingRetained(subscription, saw_all, self._changes)
        self.pending.add(pending)
        return pending

    @property
    def noted(self) -> int:
        """How many topics are known to have changed while any subscription was pending."""
        return len(self._changed)

    def settled(self, pending: Iterable[PendingRetained]) -> None:
        self.pending.difference_update(pending)
        if not self.pending:
            self._changed.clear()

    def is_live(self, pending: PendingRetained, topic: bytes) -> bool:
        """True if the subscription gets this change live. If too many topics change, a message may arrive both live and
        retained."""
        return pending.saw_all and self._changed.get(topic, 0) > pending.since

    def fresh(self) -> Self:
        return type(self)(self.stored.fresh())

    def swap(self, fresh: Self) -> None:
        self.index, self.expiring = fresh.index, fresh.expiring
        self.stored.swap(fresh.stored)

    def has_expired(self, topic: bytes, now_ms: int) -> bool:
        return 0 < self.expiring.get(topic, 0) <= now_ms

    def expired(self, now_ms: int, limit: int) -> list[bytes]:
        """Topics whose messages have expired, at most `limit`."""
        found: list[bytes] = []
        for topic, expires_ms in self.expiring.items():
            if expires_ms <= now_ms:
                found.append(topic)
                if len(found) >= limit:
                    break
        return found


def of_row(topic: bytes, row: RetainedMessage, qos: int, now_ms: int) -> Publish | None:
    """A retained message as it is now; None if it has expired [MQTT-3.3.2-5]."""
    if row.expires_ms == 0:
        return publication(row.version, qos, True, topic, row.payload, row.properties)
    left_ms = row.expires_ms - now_ms
    if left_ms <= 0:
        return None
    left_s = -(-left_ms // 1000)
    message = publication(row.version, qos, True, topic, row.payload, row.properties, left_s)
    if row.version != 5:
        return message
    packet = with_expiry(message.packet, left_s)
    properties = packet[message.payload_at - len(row.properties) : message.payload_at]
    return Publish(packet, 5, qos, True, topic, message.packet_id, properties, message.payload_at, left_s)


class RetainedGiving:
    """Sends retained messages to new subscriptions of clean sessions.

    For a clean session nothing is stored. For a durable session (durable/client_requests.py) the last topic sent is
    stored with each message of QoS 1 and 2. So its next owner continues there, and sends nothing twice.
    """

    def __init__(self, router: Router) -> None:
        self._router = router

    def last_topic(self, subscription: Subscription) -> bytes:
        """The last topic that it got, or b""."""
        return b""

    def send(self, subscription: Subscription, topic: bytes, message: Publish, qos: int) -> None:
        """Send the message retained at the topic."""
        self._router.delivery.send(subscription.session, message, qos, True, subscription.identifiers)

    def finished(self, subscription: Subscription) -> None:
        """All retained messages were sent."""


class PendingRetained:
    """One subscription that still has to get retained messages. If `saw_all`, topics that changed after change number
    `since` are left out: they are delivered live."""

    __slots__ = ("saw_all", "since", "subscription")

    def __init__(self, subscription: Subscription, saw_all: bool, since: int) -> None:
        self.subscription = subscription
        self.saw_all = saw_all
        self.since = since


Awaited = PendingRetained | Publish
"""What a feed waits for: that the table is complete for a subscription, or room for a message."""


class RetainedSender:
    """Sends retained messages to new subscriptions. `catch_up` returns when the table has all that was retained before,
    or False if that isn't known: ask again. `flush` writes to the clients what was sent."""

    def __init__(
        self,
        retained: RetainedFeed,
        giving: RetainedGiving,
        catch_up: Callable[[], Awaitable[bool]],
        flush: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._retained = retained
        self._giving = giving
        self._catch_up = catch_up
        self._flush = flush
        self._clock = clock
        self._pending: dict[Subscriber, dict[bytes, PendingRetained]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: UserTurns[Awaited] = UserTurns(clock)

    def __len__(self) -> int:
        """Sessions that still have to get retained messages."""
        return len(self._pending)

    def start(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        """Send retained messages for new subscriptions of one session. `saw_all`: the table is complete now."""
        session = subscriptions[0].session
        queue = self._pending.get(session)
        if queue is None:
            queue = self._pending[session] = {}
            task = asyncio.ensure_future(self._feed(session))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for subscription in subscriptions:
            older = queue.pop(subscription.filter, None)
            queue[subscription.filter] = self._retained.add_pending(subscription, saw_all)
            if older is not None:
                self._retained.settled((older,))

    async def _feed(self, session: Subscriber) -> None:
        queue = self._pending[session]
        user = session.takes_turns_as()
        try:
            while queue:
                steps = self._steps(session, queue)
                while (awaited := await self._turns.run(user, steps)) is not None:
                    if isinstance(awaited, PendingRetained):
                        await self._see_all(session, awaited)
                    else:
                        await self._room(session, awaited)
        finally:
            self._retained.settled(queue.values())
            del self._pending[session]

    def _steps(self, session: Subscriber, queue: dict[bytes, PendingRetained]) -> Iterator[Awaited | None]:
        """Send what the subscriptions in the queue get: a slice of the topics of one in each step."""
        while queue:
            pending = queue[next(iter(queue))]
            if not pending.saw_all:
                yield pending
            yield from self._send(session, pending)
            self._retained.settled((pending,))
            subscription = self._standing(pending)
            if queue.get(pending.subscription.filter) is pending:
                del queue[pending.subscription.filter]
            if subscription is not None:
                self._giving.finished(subscription)

    async def _see_all(self, session: Subscriber, pending: PendingRetained) -> None:
        """Wait for the log as long as it takes."""
        while not await self._catch_up():
            if self._standing(pending) is None:
                return
            await asyncio.sleep(RETAINED_BACK_S)

    def _send(self, session: Subscriber, pending: PendingRetained) -> Iterator[Awaited | None]:
        filter = matching(pending.subscription.filter)
        last_topic = self._giving.last_topic(pending.subscription)
        for found in self._retained.index.match_filter(filter, RETAINED_FEED_TOPICS, last_topic):
            for topic, _ in found:
                message = self._retained_now(pending, topic)
                while message is not None and not _has_room(session, message):
                    self._flush()
                    yield message
                    message = self._retained_now(pending, topic)
                subscription = self._standing(pending)
                if subscription is None:
                    return
                if message is not None:
                    self._giving.send(subscription, topic, message, message.qos)
            self._flush()
            yield None

    def _standing(self, pending: PendingRetained) -> Subscription | None:
        """The subscription that gets the rest: if a SUBSCRIBE has replaced it, the new one [MQTT-3.8.4-4]. None: it was
        removed, or the new one gets all again.
        """
        subscription = pending.subscription
        while subscription.successor is not None:
            subscription = subscription.successor
        session, filter = subscription.session, subscription.filter
        pending.subscription = subscription
        is_current = self._pending[session].get(filter) is pending
        return subscription if is_current and session.subscriptions.find(filter) is subscription else None

    def _retained_now(self, pending: PendingRetained, topic: bytes) -> Publish | None:
        """What the subscription gets of this topic. None: nothing, because it has ended, or the message was deleted,
        has expired, or is delivered live.
        """
        subscription, row = self._standing(pending), self._retained.index.get(topic)
        if subscription is None or row is None or self._retained.is_live(pending, topic):
            return None
        assert isinstance(row, RetainedMessage)
        return of_row(topic, row, min(row.qos, subscription.qos), self._clock.wall_ms())

    async def _room(self, session: Subscriber, message: Publish) -> None:
        pause_s = _ROOM_MIN_S
        while True:
            await asyncio.sleep(RETAINED_BACK_S if not session.is_connected() else pause_s)
            if not len(session.subscriptions) or _has_room(session, message):
                return
            pause_s = min(2 * pause_s, _ROOM_MAX_S)


def _has_room(session: Subscriber, message: Publish) -> bool:
    return (
        session.is_connected()
        and session.sink.out_bytes <= SINK_DRAINED_BYTES
        and (message.qos == 0 or session.has_room(len(message.packet)))
    )
