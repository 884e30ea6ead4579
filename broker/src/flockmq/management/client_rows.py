"""Clients and sessions as the REST API shows them, and the filters of their lists.

Nodes of different releases exchange these structs. So fields may only be added, with a default.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec


class ClientRow(msgspec.Struct, frozen=True, kw_only=True):
    """One connection. If `heard` is False, its node didn't answer, and the other fields are empty."""

    client_id: str
    node: str
    heard: bool = True
    username: str = ""
    """Empty for an anonymous client."""
    is_superuser: bool = False
    peerhost: str = ""
    """Empty for a Unix socket."""
    port: int = 0
    listener: str = ""
    zone: str = ""
    protocol: str = ""
    """`3.1`, `3.1.1` or `5.0`."""
    keepalive_s: float = 0.0
    """The keep-alive interval; 0 means none."""
    connected_at: datetime | None = None
    session_lasts: bool = False
    """Whether the session is durable."""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One session."""

    client_id: str
    home: str
    """The node that runs the session: the owner of a durable session."""
    node: str | None = None
    """The node of its connection; None if the client is offline."""
    username: str | None = None
    """The user that the client id is bound to, if it is bound."""
    unreadable: str = ""
    """Why the owner can't read the session in Redis; then the fields below are empty."""
    expiry_s: int | None = None
    """The session expiry interval; None means for ever."""
    left_at: datetime | None = None
    """When the client disconnected."""
    subscriptions: int = 0
    queued: int = 0
    """Messages that wait for the client, or for room in its receive window."""
    queued_bytes: int = 0
    inflight: int = 0
    """Messages sent to the client whose acknowledgement isn't complete."""
    awaiting_rel: int = 0
    """QoS 2 messages from the client whose PUBREL hasn't come."""


class SubscriptionRow(msgspec.Struct, frozen=True, kw_only=True):
    filter: str
    qos: int
    no_local: bool
    retain_as_published: bool


class ShownSession(SessionRow, frozen=True, kw_only=True):
    filters: Sequence[SubscriptionRow] = ()
    """A page of its subscriptions, the oldest first."""
    next: int | None = None
    """The value of `after` for the next page; None on the last one."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """At most `limit` rows of a list. `after` is `next` of the previous page."""

    after: str | None = None
    limit: int = 100


class ClientsWanted(Place, frozen=True, kw_only=True):
    """The filters of a list of clients. Texts may contain `*` and `?`; None matches all."""

    clientid: str | None = None
    username: str | None = None
    node: str | None = None
    listener: str | None = None
    peerhost: str | None = None
    """An address or a network."""


class SessionsWanted(Place, frozen=True, kw_only=True):
    clientid: str | None = None
    connected: bool | None = None


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list of the whole cluster. With filters it may have fewer rows than `limit` and still a `next`."""

    data: Sequence[msgspec.Raw]
    count: int
    """How many there are in the cluster, whether they match the filters or not."""
    next: str | None
    missing: Sequence[str]
    """Sentences that say which nodes or slots are missing in the page."""
