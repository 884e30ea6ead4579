"""Retained messages: the `messages` table by topic, and how a new subscription gets what matches [MQTT-3.3.1-9].

What always holds: a client gets its retained messages no faster than it reads them, and a slice of them never holds
the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Self

from flockmq.bounds import SINK_DRAINED_BYTES
from flockmq.rlog.shards import RetainedMessage
from flockmq.routing.retained import RetainedIndex
from flockmq.session.publish import publication
from flockmq.session.router import Router
from flockmq.session.session import Session
from flockmq.session.subscription import Subscription

_ROOM_S: Final = 0.005
"""How often a client that reads slowly is looked at again."""
_BATCH: Final = 64


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

    async def send(self, router: Router, subscription: Subscription, flush: Callable[[], None]) -> None:
        """Give one subscription what is retained for its filter, as it reads."""
        session = subscription.session
        filter = subscription.filter
        for found in self.index.match_filter(filter):
            for start in range(0, len(found), _BATCH):
                for topic, row in found[start : start + _BATCH]:
                    assert isinstance(row, RetainedMessage)
                    qos = min(row.qos, subscription.qos)
                    message = publication(row.version, qos, True, topic, row.payload, row.properties)
                    router.send(session, message, qos, True, subscription.identifiers)
                flush()
                await _room(session)
                if session.subscription(filter) is not subscription:
                    return
            await asyncio.sleep(0)


async def _room(session: Session) -> None:
    while session.sink.out_bytes > SINK_DRAINED_BYTES or session.queue_length() + _BATCH > session.max_queue_messages:
        if session.subscriptions is None:
            return
        await asyncio.sleep(_ROOM_S)
