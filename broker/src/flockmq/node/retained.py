"""Retained messages: the `messages` table by topic, and how a new subscription gets what matches [MQTT-3.3.1-9].

What always holds: a client gets its retained messages no faster than it reads them, and none for a subscription that
is gone; a slice of them never holds the event loop; one task at most works for one session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Self

from flockmq.bounds import RETAINED_FEED_TOPICS, SINK_DRAINED_BYTES
from flockmq.rlog.shards import RetainedMessage
from flockmq.routing.retained import RetainedIndex
from flockmq.session.publish import publication
from flockmq.session.router import Router
from flockmq.session.session import Session
from flockmq.session.subscription import Subscription

_ROOM_MIN_S: Final = 0.005
_ROOM_MAX_S: Final = 0.25
"""How often a client that reads slowly is looked at again: less and less."""


def _size(row: object) -> int:
    assert isinstance(row, RetainedMessage)
    return len(row.payload) + len(row.properties)


class Retained:
    """Listens to `messages`."""

    def __init__(self) -> None:
        self.index = RetainedIndex(_size)

    def put(self, key: bytes, value: RetainedMessage, old: RetainedMessage | None) -> None:
        self.index.put(key, value)

    def delete(self, key: bytes, old: RetainedMessage) -> None:
        self.index.remove(key)

    def fresh(self) -> Self:
        return type(self)()

    def swap(self, fresh: Self) -> None:
        self.index = fresh.index


class Feeds:
    """`catch_up` returns when the table has all that was retained before; `flush` has what was put written."""

    def __init__(
        self, retained: Retained, router: Router, catch_up: Callable[[], Awaitable[object]], flush: Callable[[], None]
    ) -> None:
        self._retained = retained
        self._router = router
        self._catch_up = catch_up
        self._flush = flush
        self._owed: dict[Session, dict[bytes, Subscription]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Sessions that are owed something."""
        return len(self._owed)

    def owe(self, subscriptions: list[Subscription]) -> None:
        """Give new subscriptions of one session what is retained for them."""
        session = subscriptions[0].session
        owed = self._owed.get(session)
        if owed is None:
            owed = self._owed[session] = {}
            task = asyncio.ensure_future(self._feed(session))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        owed.update((subscription.filter, subscription) for subscription in subscriptions)

    async def _feed(self, session: Session) -> None:
        try:
            while owed := self._owed[session]:
                self._owed[session] = {}
                await self._catch_up()
                for subscription in owed.values():
                    await self._send(session, subscription)
        finally:
            del self._owed[session]

    async def _send(self, session: Session, subscription: Subscription) -> None:
        filter = subscription.filter
        for found in self._retained.index.match_filter(filter, RETAINED_FEED_TOPICS):
            for topic, _ in found:
                row = self._retained.index.get(topic)
                if row is None:
                    continue  # deleted, while the client had no room for it
                assert isinstance(row, RetainedMessage)
                qos = min(row.qos, subscription.qos)
                message = publication(row.version, qos, True, topic, row.payload, row.properties)
                if not _has_room(session, qos, len(message.packet)):
                    await self._room(session, qos, len(message.packet))
                if session.subscription(filter) is not subscription:
                    return
                self._router.send(session, message, qos, True, subscription.identifiers)
            self._flush()
            await asyncio.sleep(0)

    async def _room(self, session: Session, qos: int, size_bytes: int) -> None:
        self._flush()
        pause_s = _ROOM_MIN_S
        while True:
            await asyncio.sleep(pause_s)
            if session.subscriptions is None or _has_room(session, qos, size_bytes):
                return
            pause_s = min(2 * pause_s, _ROOM_MAX_S)


def _has_room(session: Session, qos: int, size_bytes: int) -> bool:
    return session.sink.out_bytes <= SINK_DRAINED_BYTES and (qos == 0 or session.has_room(size_bytes))
