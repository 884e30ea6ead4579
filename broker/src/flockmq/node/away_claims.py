"""Exclusive filters of clients that are away, judged when rules change: another client gets what nobody may use.

All else that waits for such a client is judged when it is back, for nothing is sent to it before. A home knows less of
it than the node of its connection did. So only who was judged last by what the home knows of it, too, which is rules of
the log and the file that don't look at addresses, is judged by these alone; any other keeps its filters until it is
back. Who can't come back at all, because its user was deleted, loses them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from flockmq.bounds import REJOIN_SLICE_FILTERS, STANDING_AGAIN_S
from flockmq.home.residents import Residents
from flockmq.mqtt.topics import is_exclusive
from flockmq.session.durable import DurableSession

log: Final = logging.getLogger(__name__)


class Access(Protocol):
    """What is known of clients by their names."""

    def rules_by_name(self, client_id: bytes, user: bytes) -> bytes:
        """As `Opening.rules`; b"": more must be known."""
        ...

    def is_denied_by_name(self, client_id: bytes, user: bytes, filter: bytes, qos: int) -> bool: ...
    def is_gone(self, user: bytes) -> bool:
        """Nobody is let in as this user any more."""
        ...


class AwayClaims:
    """`claimants` are the client ids that have claims here."""

    def __init__(self, residents: Residents, access: Access, claimants: Callable[[], list[bytes]]) -> None:
        self._residents = residents
        self._access = access
        self._claimants = claimants
        self._known: dict[bytes, bytes] = {}
        """Client id → by which rules it was judged last, where the home knows all that these look at."""
        self._soon: asyncio.Task[None] | None = None

    def claimed(self, client_id: bytes) -> None:
        """Its client is there, and was judged."""
        session = self._residents.sessions.find(client_id)
        if isinstance(session, DurableSession):
            self._learn(session)

    def rules_changed(self) -> None:
        """Amid an entry of the log. More of them are looked at together."""
        if self._soon is None:
            self._soon = asyncio.ensure_future(self._look_soon())

    async def _look_soon(self) -> None:
        await asyncio.sleep(STANDING_AGAIN_S)
        self._soon = None
        await self.look()

    async def look(self) -> None:
        claimants = self._claimants()
        for count, client_id in enumerate(claimants, start=1):
            session = self._residents.sessions.find(client_id)
            if isinstance(session, DurableSession) and self._residents.holding.holds(session):
                self._look_at(session)
            if count % REJOIN_SLICE_FILTERS == 0:
                await asyncio.sleep(0)
        self._known = {client_id: self._known[client_id] for client_id in claimants if client_id in self._known}

    def _learn(self, session: DurableSession) -> bytes:
        rules = self._access.rules_by_name(session.client_id, session.user or b"")
        if rules and rules == session.judged:
            self._known[session.client_id] = rules
        return rules

    def _look_at(self, session: DurableSession) -> None:
        client_id, user = session.client_id, session.user or b""
        rules = self._learn(session)
        if client_id not in self._residents.sessions.away:
            return
        held = [subscription for subscription in session.all_subscriptions() if is_exclusive(subscription.filter)]
        if self._access.is_gone(user):
            self._end(session, [subscription.filter for subscription in held])
        elif rules and rules != session.judged and session.judged == self._known.get(client_id):
            denied = self._access.is_denied_by_name
            asked = {held.filter: (session.asked_for(held.filter), held.qos) for held in held}
            self._end(session, [filter for filter, (said, qos) in asked.items() if denied(client_id, user, said, qos)])

    def _end(self, session: DurableSession, filters: list[bytes]) -> None:
        if filters:
            log.info("client %r, who is away, lost %d exclusive filters", session.client_id.decode(), len(filters))
            self._residents.holding.now()
            self._residents.holding.revoke(session, filters)
            self._residents.holding.seal()
