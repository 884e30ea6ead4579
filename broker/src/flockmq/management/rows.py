"""Clients and sessions as the REST API shows them, and which of them are asked for.

Nodes ask one another for these, whatever their releases: a field is only ever added, with a default.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec


class ClientRow(msgspec.Struct, frozen=True, kw_only=True):
    """One connection. Unless its node is `heard`, nothing more is known of it."""

    client_id: str
    node: str
    heard: bool = True
    username: str = ""
    """Empty: it is anonymous."""
    is_superuser: bool = False
    peerhost: str = ""
    """Empty: it came by a Unix socket."""
    port: int = 0
    listener: str = ""
    zone: str = ""
    protocol: str = ""
    """`3.1`, `3.1.1` or `5.0`."""
    keepalive_s: float = 0.0
    """Of silence, after which it is sent away; 0: never."""
    connected_at: datetime | None = None
    session_lasts: bool = False
    """It outlives the connection, and runs at the client id's home."""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One session. An `unreadable` one is kept as Redis has it, and nothing more is known of it."""

    client_id: str
    home: str
    """The node where it runs."""
    node: str | None = None
    """Of its connection; None: its client is away."""
    username: str | None = None
    """Whose it is; None: nobody's in particular."""
    unreadable: str = ""
    expiry_s: int | None = None
    """How long it outlives its connection; None: for ever."""
    left_at: datetime | None = None
    """When its client left."""
    subscriptions: int = 0
    queued: int = 0
    """Messages that wait for a place in the client's window, or for the client."""
    queued_bytes: int = 0
    inflight: int = 0
    """Messages to the client that aren't acknowledged to their end."""
    awaiting_rel: int = 0
    """QoS 2 messages of the client whose PUBREL hasn't come."""


class SubscriptionRow(msgspec.Struct, frozen=True, kw_only=True):
    filter: str
    qos: int
    no_local: bool
    retain_as_published: bool


class ShownSession(SessionRow, frozen=True, kw_only=True):
    filters: Sequence[SubscriptionRow] = ()
    """A page of its subscriptions, in the order in which they were made."""
    next: int | None = None
    """What to ask for as `after` to go on; None: there are no more."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """At most `limit` rows of a list, after what the page before said as `next`."""

    after: str | None = None
    limit: int = 100


class ClientsWanted(Place, frozen=True, kw_only=True):
    """Texts may hold `*` and `?`; None: anything."""

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
    """A page of the whole cluster's rows. With a filter it may have fewer rows than `limit`, and still a `next`."""

    data: Sequence[msgspec.Raw]
    count: int
    """How many the cluster has, whichever are asked for."""
    next: str | None
    missing: Sequence[str]
    """What the page lacks at the moment, in words."""
