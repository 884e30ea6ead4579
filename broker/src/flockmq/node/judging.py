"""Wires up the authorization of clients, and its repetition when rules or plugins change."""

from __future__ import annotations

from functools import partial

from flockmq.auth.authorizer import Authorizer
from flockmq.clock import Clock
from flockmq.membership.cluster_version import ClusterVersion
from flockmq.node.access_control import AccessControl
from flockmq.node.connection_services import unsubscribe
from flockmq.node.connections import Connections
from flockmq.node.judging_queue import JudgingQueue
from flockmq.node.judging_turns import JudgingTurns
from flockmq.node.offline_exclusive_subscriptions import OfflineExclusiveSubscriptions
from flockmq.node.plugin_hooks import PluginHooks
from flockmq.node.publish_reauthorization import PublishReauthorization
from flockmq.node.subscription_reauthorization import SubscriptionReauthorization
from flockmq.node.subscription_revocation import SubscriptionRevocation
from flockmq.protocol.clean_session_end import LocalSessions
from flockmq.routing.router import Router
from flockmq.session_rpc.remote_sessions import RemoteSessions
from flockmq.transport.reactor import Reactor


class Judging:
    """One per node. `queue` is the `JudgePort` of the connections."""

    def __init__(
        self,
        authorizer: Authorizer,
        access: AccessControl,
        plugin_hooks: PluginHooks,
        router: Router,
        reactor: Reactor,
        clients: Connections,
        sessions: LocalSessions,
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
            JudgingTurns(access),
            reactor.channels,
            clients.by_id.get,
            partial(unsubscribe, sessions, plugin_hooks),
            remote_sessions,
            version.gate(2),
            plugin_hooks.rewrites,
            reactor.soon,
        )
        self._subscription_reauthorization = SubscriptionReauthorization(
            revoking, authorizer.revoking_disconnects, clock
        )
        turns = JudgingTurns(access)
        self.queue = JudgingQueue(turns, self._subscription_reauthorization, reactor)
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
