"""Publishes messages for which no connection waits: due wills, delayed messages, and messages of plugins.

Invariants: when a message is due and its client may no longer publish it, it is dropped. A message beyond its user's
quota isn't stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from flockmq.auth.stored_authorization import KNOWN, DeferredAuthorization, SentMessage, StoredAuthorization, decoded
from flockmq.bounds import REFUSALS_LOGGED_PER_S, RETAINED_MESSAGE_BYTES
from flockmq.clock import Clock
from flockmq.logs import Sparing
from flockmq.membership.cluster import Cluster
from flockmq.mqtt.message import Publish, Will, publication
from flockmq.mqtt.reason import Reason
from flockmq.node.memory_shortage import MemoryShortage
from flockmq.node.user_quotas import UserQuotas
from flockmq.protocol.client import ASKED, DENIED
from flockmq.publishing.delayed import Delayed, authorization_of
from flockmq.publishing.log_queue import OVER_QUOTA, QueuedRow
from flockmq.publishing.retained_log import RetainedLog
from flockmq.publishing.unattended import Unattended
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.rlog import ReasonOf, Rlog
from flockmq.rlog.schema import RETAINED, DelayedMessage
from flockmq.routing.router import Router
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc.clean_session_wills import PendingWill

log: Final = logging.getLogger(__name__)


class LeftMessages:
    """Checks and publishes these messages on one node. Implements `publishing.delayed.DelayedPort`."""

    def __init__(
        self,
        cluster: Cluster,
        rlog: Rlog,
        router: Router,
        deferred_authorization: DeferredAuthorization,
        quotas: UserQuotas,
        shortage: MemoryShortage,
        retaining: RetainedLog,
        reason_of: ReasonOf,
        spawn: Callable[[Awaitable[None]], None],
        flush: Callable[[], None],
        clock: Clock,
        token_bytes: Callable[[int], bytes],
    ) -> None:
        self._cluster = cluster
        self._rlog = rlog
        self._counters = router.counters
        self._deferred_authorization = deferred_authorization
        self._quotas = quotas
        self._retaining = retaining
        self._dropped = Sparing(log, REFUSALS_LOGGED_PER_S, clock.monotonic)
        self.refuses = shortage.refuses
        self.delayed = Delayed(self, reason_of, cluster.time.clock, token_bytes, cluster.version.gate(2))
        self.unattended = Unattended(
            router, retaining.retain_unattended, self._delay_left, spawn, flush, clock.monotonic
        )
        self.publish = self.unattended.publish_due

    def publish_left(self, left: PendingWill, accepted: Callable[[], None]) -> None:
        """Publish a due will if its client may still publish it. Calls `accepted` as `Unattended` does."""
        message = left.will.message
        authorization = decoded(left.will.authorization, left.client_id, left.user)
        message.user = authorization.user if authorization.why & KNOWN else left.user
        sent = authorization.sent_message(message.topic, message.qos, message.retain)
        verdict = self._deferred_authorization.check(authorization, sent)
        if verdict == DENIED:
            self.drop(authorization.client_id, message.topic)
            accepted()
            return
        may = partial(self._is_still_allowed, authorization, sent, message) if verdict == ASKED else None
        self.unattended.publish(message, accepted, authorization, may)

    def publish_will(self, will: Will, session: LocalSession) -> None:
        """Publish the will of a clean session that ended."""
        self.publish_left(PendingWill(session.client_id, None, will), nobody_waits)

    def send_as_plugin(self, topic: bytes, payload: bytes, qos: int, retain: bool) -> None:
        self.unattended.publish(publication(4, qos, retain, topic, payload, b""), nobody_waits)

    async def _is_still_allowed(self, authorization: StoredAuthorization, sent: SentMessage, message: Publish) -> bool:
        may = await self._deferred_authorization.is_still_allowed(authorization, sent)
        if not may:
            self.drop(authorization.client_id, message.topic)
        return may

    def drop(self, client_id: bytes, topic: bytes) -> None:
        """Count and log a message that its client may no longer publish."""
        self._counters.dropped_revoked += 1
        text = "what client %r left for %r is dropped: it may not publish it any more"
        self._dropped.info(text, client_id.decode(), topic)

    async def delay(self, message: Publish, authorization: StoredAuthorization | None) -> int:
        """Store a `$delayed/…` message in the log. Returns a reason code, or OVER_QUOTA."""
        user = None if authorization is None else authorization.user
        async with self._quotas.storing(user, _stored_bytes(message)) as may:
            return await self.delayed.take(message, authorization) if may else OVER_QUOTA

    def delayed_row(self, message: Publish, authorization: StoredAuthorization) -> QueuedRow | int:
        """What to write for a `$delayed/…` message, or the reason code of its refusal."""
        op = self.delayed.row(message, authorization)
        return op if isinstance(op, int) else QueuedRow(op, authorization.user, _stored_bytes(message))

    async def _delay_left(self, message: Publish, authorization: StoredAuthorization | None) -> int:
        """As `delay`, but a message beyond the quota counts as stored: it is dropped and not retried."""
        reason = await self.delay(message, authorization)
        return Reason.SUCCESS if reason == OVER_QUOTA else reason

    # --- called by `Delayed` ----------------------------------------------------------------------------------------

    def leads(self) -> bool:
        return self._cluster.is_leader

    async def retain(self, message: Publish) -> bool:
        return await self._retaining.retain_due(message) < 0x80

    def row(self, key: bytes) -> DelayedMessage | None:
        return self._rlog.tables.delayed.get(key)

    def write(self, ops: Sequence[Op]) -> asyncio.Future[StreamId]:
        return self._rlog.submit(RETAINED, ops)

    async def caught_up(self) -> bool:
        return await self._retaining.caught_up()

    def drops(self, row: DelayedMessage) -> bool:
        """Whether to drop a due message because its client may no longer publish it. HTTP services aren't asked, so
        that other due messages don't wait for their answers."""
        authorization = authorization_of(row)
        sent = authorization.sent_message(row.topic, row.qos, row.retain)
        if self._deferred_authorization.check(authorization, sent) != DENIED:
            return False
        self.drop(row.client_id, row.topic)
        return True


def _stored_bytes(message: Publish) -> int:
    return RETAINED_MESSAGE_BYTES + len(message.packet)


def nobody_waits() -> None:
    """An `accepted` callback for messages whose acceptance nobody waits for."""
