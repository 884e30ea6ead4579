"""A node that was purged, during its start or later, rejoins with a new incarnation and keeps its clients.

Invariants: a client that stays connected has missed no QoS 1 or 2 message.
- A client with a clean session and a subscription of QoS 1 or 2 may have missed one, because messages for the former
  incarnation were dropped. The node disconnects it, and its session ends.
- A client stays if its session is durable, or if it subscribed at QoS 0 only or not at all.
- A client with a will is disconnected in any case, because the owner published the will when it purged the node. A
  durable session continues.
- The node writes nothing until it is linked with a majority of the cores again. Messages that waited here for other
  nodes keep their sequence numbers.
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
from flockmq.rlog.schema import ROUTES
from flockmq.routes.own_routes import in_pieces
from flockmq.session.client_session import ClientSession
from flockmq.session.local_session import LocalSession

log: Final = logging.getLogger(__name__)


async def come_in(purged: asyncio.Event, node: Node, *, is_refused: bool) -> None:
    """Join the cluster after the start. `is_refused`: the log already refuses this incarnation, because it was purged
    while it started."""
    if not is_refused:
        try:
            await _until_logged(node.cluster.join)
            return
        except LogRefused as refused:
            log.warning("%s: this node was purged before it was a member", refused)
    await come_back(purged, node)


async def come_back(purged: asyncio.Event, node: Node) -> None:
    """Rejoin. If the node is purged again meanwhile, try again."""
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
    """Become a member again with a new incarnation. Waits for the log as long as necessary. Raises LogRefused if the
    node was purged once more."""
    closed = await _close_who_may_have_missed(node)
    me = await node.cluster.take_new_incarnation()
    closed += await _close_who_may_have_missed(node)  # those who subscribed meanwhile have no valid route
    claims = node.routes.rename(me)
    try:
        await node.rlog.rejoin(me)
        node.session_rpc.rename(me)  # before the node gets slots; otherwise messages for them would be lost
        await _until_logged(node.cluster.join)
    finally:  # a claim that can't be written disconnects its client
        for filter, client_id in claims:
            node.routes.filters.exclusive.claim(filter, client_id, partial(_claimed, node, client_id))
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
    """Write the routes of all clients here again, for the new incarnation."""
    subscriptions = [each.subscriptions.all() for each in _sessions(node) if isinstance(each, LocalSession)]
    filters = dict.fromkeys(subscription.filter for some in subscriptions for subscription in some)
    shared = [filter for filter in filters if is_shared(filter)]
    if shared:
        node.routes.filters.shares.put(shared, _written)
    others = [matching(filter) if is_exclusive(filter) else filter for filter in filters if not is_shared(filter)]
    for first in range(0, len(others), REJOIN_SLICE_FILTERS):
        for piece in in_pieces(others[first : first + REJOIN_SLICE_FILTERS]):
            await _until_logged(partial(_write_wanted, node, piece))


async def _write_wanted(node: Node, filters: Sequence[bytes]) -> None:
    """Write the filters that clients here are still subscribed to."""
    ops = [ROUTES.put((filter, node.cluster.incarnation), None) for filter in filters if node.router.has_local(filter)]
    if ops:
        await node.routes.turns.submit(ops)


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
    """If another client has the exclusive filter now, disconnect the client."""
    if reason >= 0x80:
        node.clients.close(client_id, Reason.SERVER_SHUTTING_DOWN)


def _written(reason: int) -> None:
    """Ignore errors: the callee tries again by itself."""
