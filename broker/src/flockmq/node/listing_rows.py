"""Converts connections and sessions to the rows that the REST API returns. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from flockmq.auth.name_patterns import glob
from flockmq.bounds import DIRECTORY_NAME_MAX_CHARS, DIRECTORY_PAGE_MAX_BYTES
from flockmq.durable.proxy_sink import ProxySink
from flockmq.durable.session import DurableSession
from flockmq.management.client_rows import ClientRow, ClientsWanted, SessionRow, ShownSession, SubscriptionRow
from flockmq.membership.reachability import name_of
from flockmq.mqtt.message import NEVER_EXPIRES
from flockmq.protocol.channel import Channel
from flockmq.routing.subscriber import Subscription
from flockmq.session.local_session import LocalSession

Matches = Callable[[Channel], bool]


def client_row(channel: Channel, node: str, now_s: float, wall_s: float) -> ClientRow:
    """`now_s` and `wall_s` are the current time of the monotonic and of the wall clock."""
    peer, session = channel.peer(), channel.session
    return ClientRow(
        client_id=channel.client_id().decode(),
        node=node,
        username=_username(channel)[:DIRECTORY_NAME_MAX_CHARS],
        is_superuser=channel.principal.superuser,
        peerhost=peer.host,
        port=peer.port,
        listener=peer.listener,
        zone=peer.zone,
        protocol="5.0" if channel.protocol_version == 5 else "3.1" if channel.is_mqtt31 else "3.1.1",
        keepalive_s=channel.keepalive_s / channel.limits.keepalive_multiplier,
        connected_at=datetime.fromtimestamp(round(wall_s - now_s + channel.connected_s, 3), UTC),
        session_lasts=session is not None and session.is_remote(),
    )


def matching_clients(wanted: ClientsWanted) -> Matches:
    """The filters that only the node of a connection can check. Raises ValueError for an invalid peerhost."""
    tests: list[Matches] = []
    if wanted.username is not None:
        is_name = glob(wanted.username)
        tests.append(lambda channel: is_name(_username(channel)))
    if wanted.listener is not None:
        is_listener = glob(wanted.listener)
        tests.append(lambda channel: is_listener(channel.peer().listener))
    if wanted.peerhost is not None:
        network = ipaddress.ip_network(wanted.peerhost)
        tests.append(lambda channel: _is_in(network, channel.peer().host))
    return lambda channel: all(test(channel) for test in tests)


def asks_the_node(wanted: ClientsWanted) -> bool:
    """Whether there are filters that only the nodes of the connections can check."""
    return (wanted.username, wanted.listener, wanted.peerhost) != (None, None, None)


def _username(channel: Channel) -> str:
    return channel.principal.username.decode(errors="replace")


def _is_in(network: ipaddress.IPv4Network | ipaddress.IPv6Network, host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in network
    except ValueError:  # of a Unix socket
        return False


def session_row(session: DurableSession, home: str) -> SessionRow:
    return SessionRow(**_numbers(session, home))


def shown_session(session: LocalSession | DurableSession, home: str, after: int, limit: int) -> ShownSession:
    """The session with at most `limit` subscriptions, after the first `after`."""
    shown = []
    size_bytes = 0
    for subscription in islice(session.subscriptions.all(), after, after + limit):
        shown.append(_subscription_row(subscription))
        size_bytes += len(subscription.filter)
        if size_bytes >= DIRECTORY_PAGE_MAX_BYTES:
            break
    goes_on = after + len(shown) < len(session.subscriptions)
    return ShownSession(**_numbers(session, home), filters=shown, next=after + len(shown) if goes_on else None)


def _numbers(session: LocalSession | DurableSession, home: str) -> dict[str, Any]:
    return {
        "client_id": session.client_id.decode(),
        "home": home,
        "subscriptions": len(session.subscriptions),
        **(_of_durable(session) if isinstance(session, DurableSession) else _of_local(session, home)),
    }


def _of_durable(session: DurableSession) -> dict[str, Any]:
    meta, user, messages = session.meta, session.record.user, session.messages
    return {
        "node": name_of(session.sink.node.incarnation) if isinstance(session.sink, ProxySink) else None,
        "username": None if user is None else user.decode(errors="replace")[:DIRECTORY_NAME_MAX_CHARS],
        "expiry_s": None if meta.expiry_s == NEVER_EXPIRES else meta.expiry_s,
        "left_at": datetime.fromtimestamp(meta.left_ms / 1000, UTC) if meta.left_ms else None,
        "queued": messages.waiting(),
        "queued_bytes": messages.waiting_bytes(),
        "inflight": len(messages.inflight),
        "awaiting_rel": len(session.incoming),
    }


def _of_local(session: LocalSession, node: str) -> dict[str, Any]:
    """The values of a clean session."""
    return {
        "node": node,
        "username": None,
        "expiry_s": session.expiry_s,
        "left_at": None,
        "queued": session.waiting(),
        "queued_bytes": session.queue_bytes,
        "inflight": len(session.inflight or ()),
        "awaiting_rel": len(session.awaiting_rel or ()),
    }


def _subscription_row(subscription: Subscription) -> SubscriptionRow:
    return SubscriptionRow(
        filter=subscription.filter.decode(),
        qos=subscription.qos,
        no_local=subscription.no_local,
        retain_as_published=subscription.retain_as_published,
    )
