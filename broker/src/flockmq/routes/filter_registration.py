"""What this node writes to the log for its clients' filters: routes, members of shared subscriptions, exclusive claims.

Invariants: `is_routed` is True only while this node's own tables route by the filter. A write to two tables has one
result, the worse of the two.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_exclusive, is_shared, matching
from flockmq.protocol.ports import FiltersPort
from flockmq.rlog.rlog import ReasonOf
from flockmq.routes.count_turns import CountTurns
from flockmq.routes.exclusive_claim_table import Done, PendingClaims, Secure
from flockmq.routes.exclusive_claims import ExclusiveClaims, InUse, IsHere
from flockmq.routes.own_routes import OwnRoutes, WorstReason
from flockmq.routes.route_turns import NOBODY, Submit
from flockmq.routes.shared_members import OwnSharedMembers
from flockmq.routing.router import Router

log: Final = logging.getLogger(__name__)

Holders = Callable[[bytes], Collection[str]]


class FilterRegistration(FiltersPort):
    """`submit` writes to the shard of routes, users in turn; `secure` tells when that loses nothing any more. `holders`
    returns the owners of a filter's rows. `counts`: when changed numbers of members are written."""

    def __init__(
        self,
        me: str,
        submit: Submit,
        secure: Secure,
        holders: Holders,
        router: Router,
        in_use: InUse,
        is_here: IsHere,
        reason_of: ReasonOf,
        counts: CountTurns,
    ) -> None:
        self.routes = OwnRoutes(me, submit, holders, router.has_local, reason_of)
        self.shares = OwnSharedMembers(me, submit, router.shared.count, reason_of, counts)
        self.exclusive = ExclusiveClaims(me, submit, secure, reason_of, in_use, is_here)
        self._router = router
        router.shared.me = me
        router.shared.on_count = self.shares.changed

    def is_routed(self, filter: bytes) -> bool:
        return self.shares.has(filter) if is_shared(filter) else self.routes.has(matching(filter))

    def claim(
        self, client_id: bytes, filters: list[bytes], done: Callable[[dict[bytes, int]], None], user: bytes = NOBODY
    ) -> None:
        """Ask the cluster, in the user's turn, to grant the client these exclusive filters. `done` gets the refused
        ones."""
        claim_all(self.exclusive.pending, client_id, filters, partial(self.exclusive.claim, user=user), done)

    def route(self, filters: list[bytes], done: Callable[[int], None], user: bytes = NOBODY) -> None:
        """Write rows that route filters of any kind to this node, in the user's turn. `done` gets the worst reason
        code."""
        shared = [filter for filter in filters if is_shared(filter)]
        others = [matching(filter) for filter in filters if not is_shared(filter)]
        if shared and others:
            both = WorstReason(2, done)
            self.shares.put(shared, both.done, user)
            self.routes.put(others, both.done, user)
        elif shared:
            self.shares.put(shared, done, user)
        elif others:
            self.routes.put(others, done, user)
        else:
            done(Reason.SUCCESS)

    def unrouted(self, filters: list[bytes]) -> None:
        """No client of this node subscribes to these filters any more."""
        gone: list[bytes] = []
        for filter in filters:
            if is_exclusive(filter):
                self.exclusive.release(matching(filter))
            if not is_shared(filter) and not self._router.has_local(matching(filter)):
                gone.append(matching(filter))
        if gone:
            self.routes.delete(gone)

    def try_again(self) -> None:
        """Retry deletions that may have failed while the log was unavailable."""
        self.routes.delete_again()
        self.exclusive.release_again()


class _Claims:
    """The claims of one SUBSCRIBE. The first that are granted wait for the last."""

    __slots__ = ("_client_id", "_done", "_filters", "_left", "_pending", "_refused")

    def __init__(
        self, pending: PendingClaims, client_id: bytes, filters: list[bytes], done: Callable[[dict[bytes, int]], None]
    ) -> None:
        self._pending = pending
        self._client_id = client_id
        self._filters = filters
        self._left = len(filters)
        self._refused: dict[bytes, int] = {}
        self._done = done
        self._want(1)

    def decided(self, filter: bytes, reason: int) -> None:
        if reason >= 0x80:
            self._refused[filter] = reason
        self._left -= 1
        if self._left == 0:
            self._want(-1)  # From now on the caller uses what is granted, or releases it.
            self._done(self._refused)

    def _want(self, more: int) -> None:
        for filter in self._filters:
            self._pending.want(matching(filter), self._client_id, more)


def claim_all(
    pending: PendingClaims,
    client_id: bytes,
    filters: list[bytes],
    claim: Callable[[bytes, bytes, Done], None],
    done: Callable[[dict[bytes, int]], None],
) -> None:
    """`done` gets the refused filters with their reasons, when all are decided. Until then none of the claims is
    deleted as unused: a request of the client's former connection may release them meanwhile."""
    distinct = list(dict.fromkeys(filters))
    claims = _Claims(pending, client_id, distinct, done)
    for filter in distinct:
        claim(matching(filter), client_id, partial(claims.decided, filter))
