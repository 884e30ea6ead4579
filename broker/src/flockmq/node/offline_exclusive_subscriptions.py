"""When rules change, the owner checks the exclusive subscriptions of offline clients and ends those no longer allowed,
so that other clients can use these filters.

All other subscriptions of an offline client are authorized when it reconnects, because nothing is sent to it before.
The owner knows less about the client than the node of its last connection did. So it checks a client only if it knows
everything that the last check was based on: rules of the log and of the file that don't depend on addresses or
certificates. Any other client keeps its filters until it reconnects. If its user was deleted, it loses them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from flockmq.bounds import REJOIN_SLICE_FILTERS, STANDING_AGAIN_S
from flockmq.durable.session import DurableSession
from flockmq.durable.session_service import SessionService
from flockmq.mqtt.topics import is_exclusive
from flockmq.node.access_control import AccessControl

log: Final = logging.getLogger(__name__)


class OfflineExclusiveSubscriptions:
    """`claimants` returns the client ids with exclusive claims here."""

    def __init__(
        self, session_service: SessionService, access: AccessControl, claimants: Callable[[], list[bytes]]
    ) -> None:
        self._session_service = session_service
        self._access = access
        self._claimants = claimants
        self._known: dict[bytes, bytes] = {}
        """Client id → fingerprint of the rules of its last check, if this node knows everything that these depend
        on."""
        self._soon: asyncio.Task[None] | None = None

    def claimed(self, client_id: bytes) -> None:
        """The client claims a filter: it is connected, and its node has authorized it."""
        session = self._session_service.sessions.find(client_id)
        if isinstance(session, DurableSession):
            self._learn(session)

    def rules_changed(self) -> None:
        """Called while a log entry is applied. Changes within STANDING_AGAIN_S are handled together."""
        if self._soon is None:
            self._soon = asyncio.ensure_future(self._look_soon())

    async def _look_soon(self) -> None:
        await asyncio.sleep(STANDING_AGAIN_S)
        self._soon = None
        await self.look()

    async def look(self) -> None:
        for count, client_id in enumerate(self._claimants(), start=1):
            session = self._session_service.sessions.find(client_id)
            if isinstance(session, DurableSession) and self._session_service.manager.holds(session):
                await self._look_at(session)
            if count % REJOIN_SLICE_FILTERS == 0:
                await asyncio.sleep(0)
        here = self._session_service.sessions.by_id  # A claimant's claim may still be on its way to the table.
        self._known = {client_id: rules for client_id, rules in self._known.items() if client_id in here}

    def _learn(self, session: DurableSession) -> bytes:
        rules = self._access.rules_by_name(session.client_id, session.record.user or b"")
        if rules and rules == session.record.authorized_rules:
            self._known[session.client_id] = rules
        return rules

    async def _look_at(self, session: DurableSession) -> None:
        rules = self._learn(session)
        if not self._is_away(session):
            return
        held = [each for each in session.subscriptions.all() if is_exclusive(each.filter)]
        if self._access.is_gone(session.record.user or b""):
            self._end(session, [each.filter for each in held])
        elif (
            rules
            and rules != session.record.authorized_rules
            and session.record.authorized_rules == self._known.get(session.client_id)
        ):
            asked = [(each.filter, session.subscriptions.asked_for(each.filter), each.qos) for each in held]
            self._end(session, await self._denied(session, asked))

    def _is_away(self, session: DurableSession) -> bool:
        sessions, manager = self._session_service.sessions, self._session_service.manager
        is_its = sessions.find(session.client_id) is session and manager.holds(session)
        return is_its and session.client_id in sessions.away

    async def _denied(self, session: DurableSession, asked: list[tuple[bytes, bytes, int]]) -> list[bytes]:
        """The filters that are denied; none if the client came back meanwhile, because then its node checks it. Each
        check has an event-loop iteration of its own, because it may look at many rules."""
        checked_rules, denied = session.record.authorized_rules, []
        for filter, requested, qos in asked:
            if self._access.is_denied_by_name(session.client_id, session.record.user or b"", requested, qos):
                denied.append(filter)
            await asyncio.sleep(0)
        return denied if self._is_away(session) and session.record.authorized_rules == checked_rules else []

    def _end(self, session: DurableSession, filters: list[bytes]) -> None:
        if filters:
            log.info("client %r, which is offline, lost %d exclusive filters", session.client_id.decode(), len(filters))
            manager = self._session_service.manager
            manager.now()
            manager.endings.revoke(manager.sessions, session, filters)
            manager.request_barriers()
