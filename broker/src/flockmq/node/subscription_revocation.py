"""Ends subscriptions that rules no longer allow: here those of clean sessions, at the owners those of durable sessions.

Invariants: a subscription that was made again after the check stays. Queued messages that matched only the ended
subscription are dropped; those of a shared subscription go to another member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from flockmq.node.access_control import AccessControl
from flockmq.node.authorization_turns import AuthorizationTurns
from flockmq.protocol.channel import Channel
from flockmq.routing.router import Router
from flockmq.session.local_session import LocalSession
from flockmq.session.remove_subscriptions import drop_waiting
from flockmq.session_rpc.ports import FilterAuthorizer, Held
from flockmq.session_rpc.remote_sessions import RemoteSessions


class SubscriptionRevocation:
    """The part of `SubscriptionReauthorization` that acts on clients and sessions."""

    def __init__(
        self,
        router: Router,
        access: AccessControl,
        turns: AuthorizationTurns,
        connections: Callable[[], Sequence[Channel | None]],
        find: Callable[[bytes], Channel | None],
        unsubscribe: Callable[[Channel, LocalSession, list[bytes]], list[int]],
        remote_sessions: RemoteSessions,
        owners_can_check: Callable[[], bool],
        rewrites: Callable[[Channel, bytes], bool],
        flush_soon: Callable[[], None],
    ) -> None:
        """`owners_can_check` is True once all nodes know these requests to owners (cluster version 2). `rewrites` tells
        whether rewrite rules change a client's filter."""
        self.connections = connections
        self.find = find
        self.authorize = turns.authorize
        self.rest = turns.rest
        self.flush_soon = flush_soon
        self._router = router
        self._access = access
        self._remote_sessions = remote_sessions
        self._owners_can_check = owners_can_check
        self._rewrites = rewrites
        self._unsubscribe = unsubscribe

    def must_check(self, channel: Channel) -> bool:
        """Whether the client may have subscriptions, or is about to, and is subject to rules."""
        session = channel.session
        if session is None:
            return False
        may_have_some = (
            len(session.subscriptions) > 0 or channel.subscribes_waiting > 0
            if isinstance(session, LocalSession)
            else self._owners_can_check()
        )
        return may_have_some and self._access.must_authorize(channel.principal)

    async def revoke_denied(self, channel: Channel, authorizer: FilterAuthorizer) -> list[bytes]:
        """Authorize all subscriptions of the client, end those that are denied, and return these."""
        session = channel.session
        if not isinstance(session, LocalSession):
            assert isinstance(channel.token, int)
            rules = partial(self._rules, channel)
            return await self._remote_sessions.authorize_subscriptions(
                channel, channel.token, _KnownFilters(authorizer, self._rewrites), rules
            )
        stand = {held.filter: held for held in session.subscriptions.all()}
        asked = {filter: (session.subscriptions.asked_for(filter), held.qos) for filter, held in stand.items()}
        denied = await authorizer.denied(channel, asked)
        ended = [filter for filter in denied if session.subscriptions.find(filter) is stand[filter]]
        if not ended or channel.has_ended():
            return []
        dropped, left = drop_waiting(session.queue, session.subscriptions, ended, session.take_out)
        self._unsubscribe(channel, session, ended)
        self._router.counters.dropped_revoked += dropped
        self._router.counters.subscriptions_revoked += len(ended)
        self._router.shared.redispatch(left)
        return ended

    def _rules(self, channel: Channel) -> bytes:
        """The fingerprint of the client's current rules, for the session to store."""
        return self._access.fingerprint(channel) or b""


class _KnownFilters(FilterAuthorizer):
    """Skips filters that rewrite rules change and whose original filter is unknown. An older release stored them, or
    they are auto-subscriptions."""

    def __init__(self, authorizer: FilterAuthorizer, rewrites: Callable[[Channel, bytes], bool]) -> None:
        self._authorizer = authorizer
        self._rewrites = rewrites

    async def denied(self, channel: Channel, held: dict[bytes, Held]) -> list[bytes]:
        known = {f: (asked, qos) for f, (asked, qos) in held.items() if f != asked or not self._rewrites(channel, f)}
        return await self._authorizer.denied(channel, known)
