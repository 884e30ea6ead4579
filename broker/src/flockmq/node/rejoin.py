"""A node that the cluster took for dead, amid its start or later, comes back as another incarnation, with its clients.

What always holds: a client that stays connected has missed no message of QoS 1 or 2.
- A client that may have missed one is closed, and its session ends: what others had for it went with the former
  incarnation.
- A client stays if it subscribed at QoS 0 only, or not at all, or if its session runs at its owner.
- A client with a will is closed as well, for its owner published the will with the purge. A session that runs at its
  owner goes on.
- Nothing is written until a majority of the cores is linked again. What waited in this node for other nodes goes on
  with its numbers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final

from flockmq.bounds import LOG_RETRY_MAX_S, REJOIN_SLICE_FILTERS
from flockmq.logs import Retrying
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_exclusive, is_shared, matching
from flockmq.node.node import Node
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.errors import LogFull, LogRefused
from flockmq.rlog.schema import ROUTE, ROUTES
from flockmq.routes.own_routes import in_pieces
from flockmq.session.client_session import ClientSession
from flockmq.session.local_session import LocalSession

log: Final = logging.getLogger(__name__)


async def come_in(purged: asyncio.Event, node: Node, *, is_refused: bool) -> None:
    """Make a node that has just started a member. `is_refused`: the log takes nothing from its incarnation any more,
    because the node was cut off before it was a member, and the cluster went on without it."""
    if not is_refused:
        try:
            await _until_logged(node.cluster.join)
            return
        except LogRefused as refused:
            log.warning("%s: this node was purged before it was a member", refused)
    await come_back(purged, node)


async def come_back(purged: asyncio.Event, node: Node) -> None:
    """Rejoin, however often the cluster takes the node for dead meanwhile, which sets `purged`."""
    node.cluster.readiness.is_coming_back = True
    while True:
        purged.clear()
        try:
            await rejoin(node)
            node.cluster.readiness.is_coming_back = False
            return
        except LogRefused as refused:
            log.warning("%s: this node was purged again before it was back", refused)


async def rejoin(node: Node) -> None:
    """Returns when the node is a member again; waits for the log as long as it takes. Raises LogRefused: it was purged
    once more, rejoin again."""
    closed = await _close_who_may_have_missed(node)
    me = await node.cluster.take_new_incarnation()
    closed += await _close_who_may_have_missed(node)  # who subscribed since then has routes of nobody
    node.remote.rename(me)
    node.remote_shares.rename(me)
    filters = node.filters
    filters.routes.rename(me)
    filters.shares.rename(me)
    node.router.shared.me = me
    node.router.shared.others_changed()
    claims = filters.exclusive.rename(me)
    try:
        await node.rlog.rejoin(me)
        node.session_rpc.rename(me)  # before the node gets slots, or what comes for them would be accepted and lost
        await _until_logged(node.cluster.join)
    finally:  # a claim that can't be written any more closes its client, too
        for filter, client_id in claims:
            filters.exclusive.claim(filter, client_id, partial(_claimed, node, client_id))
    await _write_routes(node)
    log.warning("this node is a member again; %d clients that may have missed messages were closed", closed)


def _sessions(node: Node) -> Iterator[ClientSession]:
    for connection in list(node.reactor.channels()):
        if connection is not None and connection.session is not None:
            yield connection.session


async def _close_who_may_have_missed(node: Node) -> int:
    closed = 0
    for count, session in enumerate(list(_sessions(node))):
        has_will = node.clients.has_will_at_owner(session.client_id)
        local = session if isinstance(session, LocalSession) else None
        if has_will or (local is not None and any(subscription.qos for subscription in local.subscriptions.all())):
            closed += 1
            ends_session = local is not None
            is_closed = node.clients.close(session.client_id, Reason.SERVER_SHUTTING_DOWN, ends_session=ends_session)
            if not is_closed and local is not None:
                node.sessions.end(local)
        if count % REJOIN_SLICE_FILTERS == REJOIN_SLICE_FILTERS - 1:
            await asyncio.sleep(0)
    return closed


async def _write_routes(node: Node) -> None:
    """Write what clients here subscribe to once more, as this incarnation's."""
    subscriptions = [each.subscriptions.all() for each in _sessions(node) if isinstance(each, LocalSession)]
    filters = dict.fromkeys(subscription.filter for some in subscriptions for subscription in some)
    shared = [filter for filter in filters if is_shared(filter)]
    if shared:
        node.filters.shares.put(shared, _written)
    others = [matching(filter) if is_exclusive(filter) else filter for filter in filters if not is_shared(filter)]
    for first in range(0, len(others), REJOIN_SLICE_FILTERS):
        for piece in in_pieces(others[first : first + REJOIN_SLICE_FILTERS]):
            await _until_logged(partial(_write_wanted, node, piece))


async def _write_wanted(node: Node, filters: Sequence[bytes]) -> None:
    """Write those of the filters that clients here still subscribe to."""
    ops = [ROUTES.put((filter, node.cluster.incarnation), None) for filter in filters if node.router.has_local(filter)]
    if ops:
        await node.rlog.write(ROUTE, ops)


async def _until_logged(write: Callable[[], Awaitable[object]]) -> None:
    waiting = Retrying(log, asyncio.get_running_loop().time)
    while True:
        try:
            await write()
            return
        except (StorageUnavailable, LogFull) as error:
            waiting.failed("what this node has to say to be a member couldn't be written, trying on: %s", error)
            await asyncio.sleep(LOG_RETRY_MAX_S)


def _claimed(node: Node, client_id: bytes, reason: int) -> None:
    """Another client may have taken the filter meanwhile."""
    if reason >= 0x80:
        node.clients.close(client_id, Reason.SERVER_SHUTTING_DOWN)


def _written(reason: int) -> None:
    """`OwnShares` tries again by itself."""
