"""This node's routing tables: what it reads of the log for its router, and what it writes there for its clients.

Invariant: a row that this node reads reaches the router before its own write of that row is answered.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from flockmq.delivery.delivery import Delivery
from flockmq.membership.cluster import Cluster
from flockmq.mqtt.topics import exclusively
from flockmq.node.connections import Connections
from flockmq.node.durable_exclusive_claims import DurableSessionClaims
from flockmq.rlog.errors import LogStopping
from flockmq.rlog.rlog import ReasonOf, Rlog
from flockmq.rlog.schema import CLAIMS, ROUTE, ROUTES, SHARES
from flockmq.routes.count_turns import CountTurns
from flockmq.routes.filter_registration import FilterRegistration
from flockmq.routes.remote_routes import RemoteRoutes, slot_of_owner
from flockmq.routes.route_turns import RouteTurns
from flockmq.routes.shared_members import RemoteSharedMembers
from flockmq.routing.router import Router
from flockmq.routing.slots import SlotPeers
from flockmq.routing.targets import NodeTarget


class NodeRoutes:
    """`remote`: routes to other nodes and slots. `shares`: members of shared subscriptions there. `filters`: what is
    written for clients here, `turns` when. `clients`, and on a core `durable_claims`, are set before clients come."""

    def __init__(self, router: Router, cluster: Cluster, delivery: Delivery, rlog: Rlog, reason_of: ReasonOf) -> None:
        me = cluster.incarnation
        self.clients: Connections
        self.durable_claims: DurableSessionClaims | None = None
        self.remote = RemoteRoutes(router, me, delivery.nodes.peer)
        self.shares = RemoteSharedMembers(router, me)
        self.turns = RouteTurns(partial(rlog.submit, ROUTE))
        self.counts = CountTurns()
        self.filters = FilterRegistration(
            me,
            self.turns.submit,
            partial(rlog.secure, ROUTE),
            self._holders,
            router,
            self._has_alone,
            self._is_here,
            reason_of,
            self.counts,
        )
        self.slot_peers = SlotPeers(delivery.slots.sender)
        self._router, self._rlog, self._peer = router, rlog, delivery.nodes.peer
        router.shared.find_peer = self._find_target
        router.dispatcher = delivery.slots.sender

    def listen(self, rlog: Rlog) -> None:
        """Follow the log from now on."""
        rlog.on_change(ROUTES.name, self.remote)
        rlog.on_change(SHARES.name, self.shares)
        rlog.on_change(CLAIMS.name, self.filters.exclusive.claims)
        self.remote.go_live()
        self.shares.go_live()

    def rename(self, me: str) -> list[tuple[bytes, bytes]]:
        """This node is another incarnation, without rows: routes and shares must be written again. Returns the (filter,
        client id) that must be claimed again."""
        self.remote.rename(me)
        self.shares.rename(me)
        self.turns.fail(LogStopping("this node continues as another incarnation"))
        self.filters.routes.rename(me)
        self.filters.shares.rename(me)
        self._router.shared.me = me
        self._router.shared.others_changed()
        return self.filters.exclusive.rename(me)

    def _holders(self, filter: bytes) -> Collection[str]:
        """The nodes that have a route for the filter."""
        return self._rlog.tables.routes.nodes(filter)

    def _find_target(self, owner: str) -> NodeTarget | None:
        """The target of shared deliveries for the `owner` of a row in `shares`: another node, or a slot."""
        slot = slot_of_owner(owner)
        return self._peer(owner) if slot < 0 else self.slot_peers.peer(slot)

    def _has_alone(self, client_id: bytes, filter: bytes) -> bool:
        """Whether a session here has the exclusive filter by a claim of this node, not by a claim of its slot."""
        session = self.clients.clean_session_of(client_id)
        if session is not None and session.subscriptions.find(exclusively(filter)):
            return True
        return self.durable_claims is not None and self.durable_claims.has_by_node(client_id, filter)

    def _is_here(self, client_id: bytes) -> bool:
        """Whether this node has the client's clean session, or owns the slot of its durable session."""
        if self.clients.clean_session_of(client_id) is not None:
            return True
        return self.durable_claims is not None and self.durable_claims.is_owner_of(client_id)
