"""Exclusive-subscription claims of the durable sessions that this node owns: makes, renews and releases them.

Invariants: a session that was loaded with an exclusive filter keeps it. Its claim is written again and again until it
exists or the subscription ends. Before cluster version 2 these claims belong to the node instead of the slot.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from flockmq.durable.session_service import SessionService
from flockmq.mqtt.topics import exclusively, is_exclusive, matching
from flockmq.node.access_control import AccessControl
from flockmq.node.offline_exclusive_subscriptions import OfflineExclusiveSubscriptions
from flockmq.rlog.rlog import ReasonOf
from flockmq.routes.durable_exclusive_claims import DurableExclusiveClaims
from flockmq.routes.exclusive_claims import ExclusiveClaims
from flockmq.routes.filter_registration import claim_all
from flockmq.routes.route_turns import Submit
from flockmq.routing.slots import slot_of


class DurableSessionClaims:
    """`of_node` has the claims of this node. `by_slot` is True once all nodes know claims of slots (cluster version 2).
    `spawn` runs a coroutine as a task."""

    def __init__(
        self,
        session_service: SessionService,
        of_node: ExclusiveClaims,
        access: AccessControl,
        submit: Submit,
        reason_of: ReasonOf,
        by_slot: Callable[[], bool],
        spawn: Callable[[Awaitable[None]], object],
    ) -> None:
        self._sessions = _ExclusiveSessions(session_service)
        self._of_node = of_node
        self._by_slot = by_slot
        self._spawn = spawn
        self._durable = DurableExclusiveClaims(of_node.pending, submit, reason_of, self._sessions)
        self.offline = OfflineExclusiveSubscriptions(session_service, access, self._durable.claimants)
        self._unclaimed: dict[tuple[bytes, bytes], None] = {}
        """(client id, exclusive filter) of sessions whose claim couldn't be written yet."""

    def __len__(self) -> int:
        return len(self._durable)

    def claim(
        self, client_id: bytes, filters: list[bytes], done: Callable[[dict[bytes, int]], None], user: bytes
    ) -> None:
        """As `durable.ports.ClusterPort.claim`."""
        claims = self._durable if self._by_slot() else self._of_node
        self.offline.claimed(client_id)
        claim_all(self._of_node.pending, client_id, filters, partial(claims.claim, user=user), done)

    def release(self, client_id: bytes, filters: list[bytes]) -> None:
        """As `durable.ports.ClusterPort.release`."""
        for filter in filters:
            self._of_node.release(matching(filter))
            if self._by_slot():
                self._durable.release(matching(filter), client_id)

    def filters_loaded(self, client_id: bytes, filters: list[bytes]) -> None:
        """A session was loaded that another node owned before. Claim its exclusive filters."""
        for filter in filters:
            if is_exclusive(filter):
                self._claim_again(client_id, filter)

    def try_again(self) -> None:
        """Write claims that couldn't be written while the log was unavailable. Release claims that no session uses."""
        unclaimed, self._unclaimed = self._unclaimed, {}
        for client_id, filter in unclaimed:
            self._claim_again(client_id, filter)
        if self._by_slot():
            for filter, client_id in self._of_node.held():
                self._claim_again(client_id, exclusively(filter))
            self._spawn(self._durable.look())
            self._spawn(self.offline.look())

    def has_by_node(self, client_id: bytes, filter: bytes) -> bool:
        """Whether a session here has `$exclusive/FILTER` without a claim of its slot, so that it needs one of the
        node."""
        return self._sessions.has_exclusively(client_id, filter) and not self._durable.exists(filter, client_id)

    def is_owner_of(self, client_id: bytes) -> bool:
        """Whether this node owns the slot of the client id."""
        return self._sessions.gained_at(slot_of(client_id)) >= 0

    def _claim_again(self, client_id: bytes, filter: bytes) -> None:
        if self._sessions.has_exclusively(client_id, matching(filter)):
            claim = self._durable.keep if self._by_slot() else self._of_node.claim
            claim(matching(filter), client_id, partial(self._claimed, client_id, filter))

    def _claimed(self, client_id: bytes, filter: bytes, reason: int) -> None:
        if reason >= 0x80:
            self._unclaimed[client_id, filter] = None


class _ExclusiveSessions:
    """The sessions here, as `routes.durable_exclusive_claims` needs them."""

    def __init__(self, session_service: SessionService) -> None:
        self._session_service = session_service
        self.has_loaded = session_service.has_loaded
        self.settle = session_service.manager.settle

    def has_exclusively(self, client_id: bytes, filter: bytes) -> bool:
        session = self._session_service.sessions.by_id.get(client_id)
        return session is not None and session.subscriptions.find(exclusively(filter)) is not None

    def is_unread(self, client_id: bytes) -> bool:
        return bool(self._session_service.manager.why_unread(client_id))

    def gained_at(self, slot: int) -> int:
        held = self._session_service.manager.slots.get(slot)
        return -1 if held is None or held.is_lost else held.gained_at

    def loaded(self) -> Iterable[int]:
        return (slot for slot in self._session_service.manager.slots if self.has_loaded(slot))
