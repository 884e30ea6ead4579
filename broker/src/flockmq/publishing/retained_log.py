"""Retained messages and the log: writes them, reads them back, and deletes expired ones.

Invariant: when a publisher gets its answer and its message is matched, the message is retained in the log, and this
node has read every route that was written before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from flockmq.bounds import (
    RETAINED_BACK_S,
    RETAINED_CLEARED_KEPT_S,
    RETAINED_EXPIRED_LOOK_S,
    RETAINED_EXPIRED_MAX,
    RETAINED_EXPIRED_SLICE,
    RETAINED_SEEN_MAX_S,
)
from flockmq.clock import Clock
from flockmq.logs import Retrying
from flockmq.mqtt.message import NO_EXPIRY, Publish
from flockmq.mqtt.reason import Reason
from flockmq.publishing.log_queue import OVER_QUOTA, QueuedRow
from flockmq.publishing.retained_feed import RetainedFeed, stored_bytes
from flockmq.rlog.entry import Op
from flockmq.rlog.retained_order import is_overtaken
from flockmq.rlog.rlog import ReasonOf, Rlog
from flockmq.rlog.schema import MESSAGES, RETAINED, ROUTE, RetainedMessage

log: Final = logging.getLogger(__name__)


class RetainedQuotas(Protocol):
    """How much users may store in the log."""

    def whose(self, user: bytes | None) -> bytes | None:
        """The user whose quota counts; None: no quota applies."""
        ...

    def storing(self, user: bytes | None, more_bytes: int) -> AbstractAsyncContextManager[bool]: ...


class RetainedLog:
    """`is_leader`: this node deletes expired messages. `reason_of` gives the reason code of a write. `has_authors`: all
    nodes understand rows with an author. `refuses`: there is no memory to retain so many
    bytes more."""

    def __init__(
        self,
        rlog: Rlog,
        retained: RetainedFeed,
        is_leader: Callable[[], bool],
        reason_of: ReasonOf,
        clock: Clock,
        has_authors: Callable[[], bool],
        refuses: Callable[[int], bool],
        quotas: RetainedQuotas,
    ) -> None:
        self._rlog = rlog
        self._retained = retained
        self._is_leader = is_leader
        self._reason_of = reason_of
        self._clock = clock
        self._has_authors = has_authors
        self._refuses = refuses
        self._quotas = quotas
        self._reading = {shard: Retrying(log, clock.monotonic) for shard in (RETAINED, ROUTE)}

    def is_overtaken(self, message: Publish) -> bool:
        """True if its client has since written to its topic through another node: a subscriber that got this message
        now would see the older message last."""
        row = self._rlog.tables.messages.get(message.topic)
        return row is not None and is_overtaken(message.author, row.author)

    async def retain_due(self, message: Publish) -> int:
        """As `retain_unattended`, for a delayed message: it counts as published now, behind all that its client has
        retained meanwhile."""
        row = self._rlog.tables.messages.get(message.topic)
        if row is not None and is_overtaken(message.author, row.author):
            message.author = row.author
        return await self.retain_unattended(message)

    async def retain_unattended(self, message: Publish) -> int:
        """Retain a message for which no connection waits. A message beyond its user's quota is neither retained nor
        retried."""
        reason = await self._retained_as(message)
        return Reason.SUCCESS if reason == OVER_QUOTA else reason

    async def _retained_as(self, message: Publish) -> int:
        row = self.row(message)
        if isinstance(row, int):
            return row
        async with self._quotas.storing(row.user, row.more_bytes) as may:
            reason = await self._written(row.op) if may else OVER_QUOTA
        if row.instead is not None and reason in (Reason.QUOTA_EXCEEDED, OVER_QUOTA):
            reason = await self._written(row.instead)
        if reason == Reason.SUCCESS:
            await self.see_routes()
        return reason

    async def see_routes(self) -> None:
        """Return when this node has all routes that were written before the newest retained message that it has."""
        if not self._rlog.has_all(ROUTE, when=RETAINED):
            # it is retained already, so it is too late to refuse it
            while not await self.caught_up(ROUTE):  # noqa: ASYNC110 - Redis tells nobody that it is back
                await asyncio.sleep(RETAINED_BACK_S)

    def row(self, message: Publish) -> QueuedRow | int:
        """What to write for a message, or the reason code of its refusal. An empty payload clears the topic
        [MQTT-3.3.1-6]: the row then tells that it was cleared, and by whom; if there is no room for such a row, it is
        deleted instead."""
        payload = message.payload()
        if payload and self._refuses(len(message.packet)):
            return Reason.QUOTA_EXCEEDED
        if payload:
            return self._row(message, payload, message.properties, self._expires_ms(message))
        delete = MESSAGES.delete(message.topic)
        if message.author and self._has_authors():
            return self._row(message, b"", b"", self._cleared_until_ms())._replace(instead=delete)
        return QueuedRow(delete, sees_routes=True)

    def _expires_ms(self, message: Publish) -> int:
        return 0 if message.expiry_s == NO_EXPIRY else self._clock.wall_ms() + message.expiry_s * 1000

    def _cleared_until_ms(self) -> int:
        return self._clock.wall_ms() + int(RETAINED_CLEARED_KEPT_S * 1000)

    def _row(self, message: Publish, payload: bytes, properties: bytes, expires_ms: int) -> QueuedRow:
        author, user = (message.author, self._quotas.whose(message.user)) if self._has_authors() else (b"", None)
        row = RetainedMessage(payload, message.qos, properties, message.version, expires_ms, author, user)
        former = self._rlog.tables.messages.get(message.topic)
        more_bytes = stored_bytes(message.topic, row)
        if former is not None and former.user == user:
            more_bytes -= stored_bytes(message.topic, former)
        return QueuedRow(MESSAGES.put(message.topic, row), user, more_bytes, sees_routes=True)

    async def _written(self, op: Op) -> int:
        written = self._rlog.submit(RETAINED, [op])
        await asyncio.wait([written])
        return self._reason_of(written)

    async def caught_up(self, shard: str = RETAINED) -> bool:
        """Return when this node has all that any node wrote to the shard before. False: that can't be known now."""
        try:
            await self._rlog.catch_up(shard)
        except Exception as error:
            self._reading[shard].failed("shard %s: %s", shard, error)
            return False
        self._reading[shard].worked()
        return True

    async def seen(self) -> bool:
        """If the log is unavailable, SUBACK waits only for a moment; the retained messages are sent when it is back."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETAINED_SEEN_MAX_S):
                return await self.caught_up()
        return False

    async def watch_expired(self) -> None:
        """On the leader, delete expired retained messages from the log. Expired messages are not sent, even before
        that."""
        while True:
            if not await self._delete_expired():
                await asyncio.sleep(RETAINED_EXPIRED_LOOK_S)

    async def _delete_expired(self) -> bool:
        """Delete slice by slice, each after the previous one is written. Returns whether there may be more."""
        if not self._is_leader():
            return False
        topics = self._retained.expired(self._clock.wall_ms(), RETAINED_EXPIRED_MAX)
        for first in range(0, len(topics), RETAINED_EXPIRED_SLICE):
            now_ms, part = self._clock.wall_ms(), topics[first : first + RETAINED_EXPIRED_SLICE]
            still = [topic for topic in part if self._retained.has_expired(topic, now_ms)]
            drops = map(self._rlog.tables.messages.drop, still)
            written = self._rlog.submit(RETAINED, [op for op in drops if op is not None])
            await asyncio.wait([written])
            if self._reason_of(written) != Reason.SUCCESS or not self._is_leader():
                return False
        return len(topics) == RETAINED_EXPIRED_MAX
