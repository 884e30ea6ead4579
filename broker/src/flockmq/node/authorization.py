"""Connects the parts that authorize clients, and that authorize them again when rules or plugins change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from flockmq.auth.authorizer import Authorizer
from flockmq.bounds import AUTHORIZATION_SLICE_CLIENTS
from flockmq.clock import Clock
from flockmq.membership.cluster_version import ClusterVersion
from flockmq.node.access_control import AccessControl
from flockmq.node.authorization_queue import AuthorizationQueue
from flockmq.node.authorization_turns import AuthorizationTurns
from flockmq.node.connection_services import unsubscribe
from flockmq.node.connections import Connections
from flockmq.node.offline_exclusive_subscriptions import OfflineExclusiveSubscriptions
from flockmq.node.plugin_hooks import PluginHooks
from flockmq.node.subscription_reauthorization import SubscriptionReauthorization
from flockmq.node.subscription_revocation import SubscriptionRevocation
from flockmq.protocol.channel import ADMITTING, CONNECTED, Channel
from flockmq.protocol.clean_session_end import CleanSessionEnd
from flockmq.protocol.client import Principal
from flockmq.routing.router import Router
from flockmq.session_rpc.remote_sessions import RemoteSessions
from flockmq.transport.reactor import Reactor


class NodeAuthorization:
    """Builds and connects these parts. `queue` is the `AuthorizationPort` of the connections."""

    def __init__(
        self,
        authorizer: Authorizer,
        access: AccessControl,
        plugin_hooks: PluginHooks,
        router: Router,
        reactor: Reactor,
        clients: Connections,
        sessions: CleanSessionEnd,
        remote_sessions: RemoteSessions,
        version: ClusterVersion,
        clock: Clock,
    ) -> None:
        self.offline_exclusive_subscriptions: OfflineExclusiveSubscriptions | None = None
        """None if this node isn't a core."""
        self._publish_reauthorization = PublishReauthorization(reactor.channels, access.must_authorize)
        revoking = SubscriptionRevocation(
            router,
            access,
            AuthorizationTurns(access),
            reactor.channels,
            clients.by_id.get,
            partial(unsubscribe, sessions, plugin_hooks),
            remote_sessions,
            version.gate(2),
            plugin_hooks.rewrites,
            reactor.soon,
        )
        self._subscription_reauthorization = SubscriptionReauthorization(
            revoking, lambda: authorizer.revoking_disconnects, clock
        )
        turns = AuthorizationTurns(access)
        self.queue = AuthorizationQueue(turns, self._subscription_reauthorization, reactor)
        authorizer.on_change = self._publish_reauthorization.rules_changed
        authorizer.on_rules = self._rules_changed
        authorizer.in_turn = turns.in_turn
        plugin_hooks.on_change = self._hooks_changed
        access.on_principal = clients.reauthorize = self._subscription_reauthorization.check_now
        version.when(2, partial(self._subscription_reauthorization.rules_changed, None))

    def _rules_changed(self, key: tuple[str, str] | None) -> None:
        self._subscription_reauthorization.rules_changed(key)
        if self.offline_exclusive_subscriptions is not None:
            self.offline_exclusive_subscriptions.rules_changed()

    def _hooks_changed(self) -> None:
        self._publish_reauthorization.rules_changed()
        self._subscription_reauthorization.rules_changed(None)


class PublishReauthorization:
    """When rules change, connections must drop what they were allowed to publish, and ask for authorization again.
    `connections` returns this node's connections, with None for closed ones. `must_authorize` tells whether a principal
    is subject to rules.
    """

    def __init__(
        self, connections: Callable[[], Sequence[Channel | None]], must_authorize: Callable[[Principal], bool]
    ) -> None:
        self._connections = connections
        self._must_authorize = must_authorize
        self._task: asyncio.Task[None] | None = None
        self._changed = False

    def rules_changed(self) -> None:
        """Mark all connections within a few event-loop iterations."""
        self._changed = True
        if self._task is None:
            self._task = asyncio.ensure_future(self._mark_all())

    async def done(self) -> None:
        """Wait until all connections were marked."""
        if self._task is not None:
            await self._task

    async def _mark_all(self) -> None:
        """Mark all connections, in slices. If rules change meanwhile, finish the round and begin another. So every
        connection is marked, however often rules change."""
        try:
            while self._changed:
                self._changed = False
                connections = self._connections()
                for first in range(0, len(connections), AUTHORIZATION_SLICE_CLIENTS):
                    for connection in connections[first : first + AUTHORIZATION_SLICE_CLIENTS]:
                        if connection is not None and connection.state in (ADMITTING, CONNECTED):
                            connection.set_must_authorize(self._must_authorize(connection.principal))
                    await asyncio.sleep(0)
        finally:
            self._task = None
