"""What clients may do, and what becomes of it when rules or plugins change: its parts put together."""

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
from flockmq.node.offline_exclusive_subscriptions import AwayClaims
from flockmq.node.plugin_hooks import PluginHooks
from flockmq.node.publish_reauthorization import Reauthorization
from flockmq.node.subscription_reauthorization import StandingSubscriptions
from flockmq.node.subscription_revocation import Revocation
from flockmq.protocol.clean_session_end import LocalSessions
from flockmq.routing.router import Router
from flockmq.session_rpc.remote_sessions import RemoteSessions
from flockmq.transport.reactor import Reactor


class Judging:
    """One per node. `queue`: what connections ask."""

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
        self.away_claims: AwayClaims | None = None
        """A core's."""
        self._reauthorizing = Reauthorization(reactor.channels, access.must_authorize)
        revoking = Revocation(
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
        self._standing = StandingSubscriptions(revoking, authorizer.revoking_disconnects, clock)
        turns = JudgingTurns(access)
        self.queue = JudgingQueue(turns, self._standing, reactor)
        authorizer.on_change = self._reauthorizing.rules_changed
        authorizer.on_rules = self._rules_changed
        authorizer.in_turn = turns.in_turn
        plugin_hooks.on_change = self._hooks_changed
        access.on_principal = clients.on_unjudged = self._standing.judge_now
        version.when(2, partial(self._standing.rules_changed, None))

    def _rules_changed(self, key: tuple[str, str] | None) -> None:
        self._standing.rules_changed(key)
        if self.away_claims is not None:
            self.away_claims.rules_changed()

    def _hooks_changed(self) -> None:
        self._reauthorizing.rules_changed()
        self._standing.rules_changed(None)
