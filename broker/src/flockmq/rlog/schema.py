"""Which tables there are, in which shard, and how their keys and values stand in the log.

Every row has an owner: the incarnation it goes with when that node is purged, or "" for rows that outlive nodes. It is
the row's own key (`nodes`), part of its key (`routes`) or its value (`slots`). A table's number is for ever: it stands
in the log. Fields may only be added to the end of a value, with a default, and `without_later`. What not every release
knows is written only at the cluster version that it came with (membership/cluster_version.py).
"""

from __future__ import annotations

from typing import Final

import msgspec

from flockmq import bounds
from flockmq.rlog.retained_authors import is_overtaken
from flockmq.rlog.table_spec import (
    TableSpec,
    join_owned,
    join_plain,
    join_text,
    no_value,
    nothing,
    split_owned,
    split_plain,
    split_text,
    without_later,
)

CLUSTER: Final = "cluster"
ROUTE: Final = "route"
RETAINED: Final = "retained"
AUTH: Final = "auth"
SHARDS: Final = (CLUSTER, ROUTE, RETAINED, AUTH)
SURE: Final = (RETAINED,)
"""Where a write that fails has no effect, however long it takes to be sure: no inverse write brings back what it would
have replaced."""


def keys_of(shard: str) -> tuple[str, str, str, str, str]:
    """The keys of a shard in Redis, in the order in which functions.lua takes them."""
    tag = f"flockmq:{{{shard}}}"
    return f"{tag}:log", f"{tag}:life", f"{tag}:sequences", f"{tag}:purged", f"{tag}:fence"


class NodeInfo(msgspec.Struct, frozen=True, array_like=True):
    """A member of the cluster, as others reach it. Port 0: it does not listen."""

    name: str
    role: str
    host: str
    link_port: int
    mqtt_port: int
    version: str


class Raised(msgspec.Struct, frozen=True, array_like=True):
    """The version that all nodes of the cluster speak."""

    version: int


class Alarm(msgspec.Struct, frozen=True, array_like=True):
    """`since_s`: the cluster's time, seconds since the epoch."""

    since_s: float
    text: str


class RetainedMessage(msgspec.Struct, frozen=True, array_like=True):
    """`properties` are the encoded MQTT 5 properties to send along, `version` the publisher's protocol version;
    `expires_ms` is the cluster's time since the epoch (0: never); `author` as in retained_authors.py; `user`: whose
    quota it takes, None where nobody knows. Without a payload: the topic was cleared, and is until it expires, so that
    nothing older of its author comes back.
    """

    payload: bytes
    qos: int
    properties: bytes
    version: int
    expires_ms: int = 0
    author: bytes = b""
    user: bytes | None = None


class User(msgspec.Struct, frozen=True, array_like=True):
    """Who may connect with a password; `password_hash` and `scram` as `auth.hashing` writes them, "" for none, and
    marked in a disabled user (`auth.user_revocation`).
    """

    password_hash: str
    scram: str = ""
    is_superuser: bool = False


class Ban(msgspec.Struct, frozen=True, array_like=True):
    """Times are the cluster's, in seconds since the epoch; `until_s` 0: for good."""

    until_s: float
    by: str
    reason: str
    at_s: float


class Import(msgspec.Struct, frozen=True, array_like=True):
    """A file of users that was taken in, `users` of it written."""

    at_s: float
    users: int


class ApiKey(msgspec.Struct, frozen=True, array_like=True):
    """Times are the cluster's, in seconds since the epoch; `until_s` 0: for good."""

    name: str
    role: str
    until_s: float
    by: str
    at_s: float


class Audited(msgspec.Struct, frozen=True, array_like=True):
    """A change that somebody made: `who` is the name of a key, `peer` an address, `about` what the path doesn't say."""

    at_s: float
    who: str
    role: str
    peer: str
    node: str
    method: str
    path: str
    about: str
    status: int


class SharedMembers(msgspec.Struct, frozen=True, array_like=True):
    """How many members of a shared subscription one node, or slot, has: connected, and whose clients are away."""

    connected: int
    away: int


class DelayedMessage(msgspec.Struct, frozen=True, array_like=True):
    """As RetainedMessage, with the topic that it is for. `client_id` and the rest are its publisher's, where they are
    known, as in a `auth.deferred_authorization.Warrant`: it may not be allowed any more when it is due.
    """

    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    version: int
    expiry_s: int = -1
    origin: bytes = b""
    client_id: bytes = b""
    user: bytes = b""
    address: str = ""
    why: int = 0
    said: bytes = b""
    common_name: str | None = None


def _int_key(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _pair(key: tuple[str, str]) -> bytes:
    """The first has no NUL: it is one of ours."""
    return f"{key[0]}\0{key[1]}".encode()


def _unpair(raw: bytes) -> tuple[str, str]:
    first, _, second = raw.decode().partition("\0")
    return first, second


def _fields(of: type[msgspec.Struct]) -> int:
    return len(of.__struct_fields__)


_pack = msgspec.msgpack.Encoder().encode


def _pack_retained(message: RetainedMessage) -> bytes:
    """Without an author and a user to the bytes of the first cluster version."""
    first = (message.payload, message.qos, message.properties, message.version, message.expires_ms)
    if message.user is not None:
        return _pack(message)
    return _pack((*first, message.author) if message.author else first)


def _keeps_retained(old: RetainedMessage, new: RetainedMessage) -> bool:
    return is_overtaken(new.author, old.author)


NODES: Final[TableSpec[str, NodeInfo]] = TableSpec(
    1, "nodes", CLUSTER,
    split=lambda key, _: (key, b""),
    join=lambda owner, _: owner,
    encode=_pack, decode=msgspec.msgpack.Decoder(NodeInfo).decode, fields=_fields(NodeInfo),
)  # fmt: skip
"""incarnation → NodeInfo; owned by that incarnation."""

SLOTS: Final[TableSpec[int, str]] = TableSpec(
    2, "slots", CLUSTER,
    split=lambda key, value: (value or "", key.to_bytes(2, "big")),
    join=lambda _, raw: _int_key(raw),
    encode=str.encode, decode=bytes.decode,
)  # fmt: skip
"""slot of client ids → incarnation of the core that owns it; the row is that incarnation's, too."""

ALARMS: Final[TableSpec[str, Alarm]] = TableSpec(
    30, "alarms", CLUSTER,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(Alarm).decode, fields=_fields(Alarm),
    max_rows=bounds.ALARMS_MAX,
)  # fmt: skip
"""name → what somebody should look at; outlives nodes, until whoever raised it or an operator ends it."""

VERSIONS: Final[TableSpec[str, Raised]] = TableSpec(
    64, "versions", CLUSTER,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(Raised).decode, fields=_fields(Raised),
)  # fmt: skip
""""cluster" → Raised, from version 2 on; outlives nodes."""

ROUTES: Final[TableSpec[tuple[bytes, str], None]] = TableSpec(
    3, "routes", ROUTE,
    split=split_owned, join=join_owned,
    encode=no_value, decode=nothing,
    buckets=256, max_rows=bounds.MAX_ROUTES,
)  # fmt: skip
"""(topic filter, incarnation that wants it) → nothing; owned by that incarnation."""

SHARES: Final[TableSpec[tuple[bytes, str], SharedMembers]] = TableSpec(
    10, "shares", ROUTE,
    split=split_owned, join=join_owned,
    encode=_pack, decode=msgspec.msgpack.Decoder(SharedMembers).decode, fields=_fields(SharedMembers),
    buckets=256, max_rows=bounds.MAX_ROUTES,
)  # fmt: skip
"""(`$share/group/filter`, incarnation or `#slot` that has members) → how many; owned by that incarnation."""

CLAIMS: Final[TableSpec[tuple[bytes, str], bytes]] = TableSpec(
    11, "claims", ROUTE,
    split=split_owned, join=join_owned,
    encode=bytes, decode=bytes,
    buckets=256, max_rows=bounds.EXCLUSIVE_MAX,
)  # fmt: skip
"""(filter of an exclusive subscription, incarnation) → client id that claims it there; owned by that incarnation. Of
sessions that last, since cluster version 2: a key of `routes.exclusive_claim_table.lasting_key`, owned by `#slot`;
outlives nodes."""

MESSAGES: Final[TableSpec[bytes, RetainedMessage]] = TableSpec(
    4, "messages", RETAINED,
    split=split_plain, join=join_plain,
    encode=_pack_retained, decode=msgspec.msgpack.Decoder(RetainedMessage).decode, fields=_fields(RetainedMessage),
    buckets=1024, max_bytes=bounds.MAX_RETAINED_BYTES, keeps=_keeps_retained,
)  # fmt: skip
"""topic → retained message; outlives nodes."""

DELAYED: Final[TableSpec[bytes, DelayedMessage]] = TableSpec(
    12, "delayed", RETAINED,
    split=split_plain, join=join_plain,
    encode=without_later(8), decode=msgspec.msgpack.Decoder(DelayedMessage).decode, fields=_fields(DelayedMessage),
    buckets=256, max_rows=bounds.DELAYED_MAX_MESSAGES, max_bytes=bounds.DELAYED_MAX_BYTES,
)  # fmt: skip
"""when it is due (milliseconds since the epoch, 8 bytes), when it was taken (microseconds, 8 bytes; the first releases
have none) and 8 random bytes → message; outlives nodes."""

USERS: Final[TableSpec[str, User]] = TableSpec(
    5, "users", AUTH,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(User).decode, fields=_fields(User),
    buckets=256, max_rows=bounds.USERS_MAX,
)  # fmt: skip
"""user name or client id → User; outlives nodes, as do all rows of this shard."""

RULES: Final[TableSpec[tuple[str, str], bytes]] = TableSpec(
    20, "rules", AUTH,
    split=lambda key, _: ("", _pair(key)),
    join=lambda _, raw: _unpair(raw),
    encode=bytes, decode=bytes,
    buckets=256, max_rows=bounds.RULED_MAX,
)  # fmt: skip
"""("username", "clientid" or "all", which) → a list of `config.auth_settings.RuleSettings` in JSON."""

BANS: Final[TableSpec[tuple[str, str], Ban]] = TableSpec(
    21, "bans", AUTH,
    split=lambda key, _: ("", _pair(key)),
    join=lambda _, raw: _unpair(raw),
    encode=_pack, decode=msgspec.msgpack.Decoder(Ban).decode, fields=_fields(Ban),
    buckets=256, max_rows=bounds.BANS_MAX,
)  # fmt: skip
"""(what, who) → Ban; `what` is one of `auth.bans.KINDS`."""

IMPORTS: Final[TableSpec[str, Import]] = TableSpec(
    22, "imports", AUTH,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(Import).decode, fields=_fields(Import),
)  # fmt: skip
"""SHA-256 of a bootstrap file, in hex → Import."""

API_KEYS: Final[TableSpec[str, ApiKey]] = TableSpec(
    70, "api_keys", AUTH,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(ApiKey).decode, fields=_fields(ApiKey),
    max_rows=bounds.API_KEYS_MAX,
)  # fmt: skip
"""SHA-256 of a key of the REST API, in hex → ApiKey, from version 2 on."""

AUDIT: Final[TableSpec[str, Audited]] = TableSpec(
    71, "audit", AUTH,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(Audited).decode, fields=_fields(Audited),
    max_rows=2 * bounds.AUDIT_MAX,
)  # fmt: skip
"""when (microseconds since the epoch, 18 digits) and 16 random hexadecimal digits → Audited, from version 2 on."""

SECRETS: Final[TableSpec[str, bytes]] = TableSpec(
    72, "secrets", AUTH,
    split=split_text, join=join_text,
    encode=bytes, decode=bytes,
    max_rows=bounds.SECRETS_MAX,
)  # fmt: skip
"""what for (`auth.unknown_user_secret`) → random bytes that stay as they are, from version 2 on."""
