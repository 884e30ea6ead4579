"""The schema of the log: which tables there are, in which shard, and how their keys and values are encoded.

Every row has an owner: the incarnation with which it is purged, or "" if the row outlives nodes. The owner is the row's
key (`nodes`), part of its key (`routes`) or its value (`slots`). A table's number never changes, because it is written
to the log. New fields may only be added at the end of a value, with a default and `without_later`. What older releases
don't know is written only from the cluster version on that introduced it (membership/cluster_version.py).
"""

from __future__ import annotations

from typing import Final

import msgspec

from flockmq import bounds
from flockmq.rlog.retained_order import is_overtaken
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
FAIL_WITHOUT_EFFECT: Final = (RETAINED,)
"""In these shards a failed write never takes effect, even if it takes long to be sure: an inverse write could not bring
back the row that it would have replaced."""


def keys_of(shard: str) -> tuple[str, str, str, str, str]:
    """The shard's keys in Redis, in the order in which functions.lua takes them."""
    tag = f"flockmq:{{{shard}}}"
    return f"{tag}:log", f"{tag}:life", f"{tag}:sequences", f"{tag}:purged", f"{tag}:fence"


class NodeInfo(msgspec.Struct, frozen=True, array_like=True):
    """A member of the cluster and its addresses. Port 0: it does not listen."""

    name: str
    role: str
    host: str
    link_port: int
    mqtt_port: int
    version: str


class RaisedVersion(msgspec.Struct, frozen=True, array_like=True):
    """The cluster version: what all nodes of the cluster understand."""

    version: int


class Alarm(msgspec.Struct, frozen=True, array_like=True):
    """`since_s`: the cluster's time, in seconds since the epoch."""

    since_s: float
    text: str


class RetainedMessage(msgspec.Struct, frozen=True, array_like=True):
    """A retained message. An empty payload means that the topic was cleared; the row is kept until it expires, so that
    no older message of the same author comes back."""

    payload: bytes
    qos: int
    properties: bytes
    """The encoded MQTT 5 properties to send with it."""
    version: int
    """The publisher's MQTT protocol version."""
    expires_ms: int = 0
    """The cluster's time, in milliseconds since the epoch. 0: never."""
    author: bytes = b""
    """See retained_authors."""
    user: bytes | None = None
    """The user whose quota it counts for. None: unknown."""


class User(msgspec.Struct, frozen=True, array_like=True):
    """A user who logs in with a password. `password_hash` and `scram` are as `auth.hashing` writes them; "": none. For
    a disabled user they are marked (`auth.user_revocation`)."""

    password_hash: str
    scram: str = ""
    is_superuser: bool = False


class OwnQuotas(msgspec.Struct, frozen=True, array_like=True):
    """The quotas of one user in place of the settings' (`config.schema.QuotasSettings`), in the order of
    `quotas.KINDS`. None: the settings' quota. INFINITE: none."""

    max_sessions: int | None = None
    max_queued_bytes: int | None = None
    max_subscriptions: int | None = None
    max_subscription_bytes: int | None = None
    max_retained_bytes: int | None = None


class Ban(msgspec.Struct, frozen=True, array_like=True):
    """Times are the cluster's, in seconds since the epoch. `until_s` 0: forever."""

    until_s: float
    by: str
    reason: str
    at_s: float


class ImportedFile(msgspec.Struct, frozen=True, array_like=True):
    """A user file that was imported; `users` of its users were written."""

    at_s: float
    users: int


class ApiKey(msgspec.Struct, frozen=True, array_like=True):
    """Times are the cluster's, in seconds since the epoch. `until_s` 0: forever."""

    name: str
    role: str
    until_s: float
    by: str
    at_s: float


class AuditEntry(msgspec.Struct, frozen=True, array_like=True):
    """A change through the REST API. `who` is the name of the key, `peer` the address, `about` what the path doesn't
    tell."""

    at_s: float
    who: str
    role: str
    peer: str
    node: str
    method: str
    path: str
    about: str
    status: int


class SettingsRevision(msgspec.Struct, frozen=True, array_like=True):
    """A revision of the settings that are changed while nodes run (config/hot.py). `by`: the name of the API key."""

    document: bytes
    """JSON: all changes to the nodes' own configurations."""
    patch: bytes
    """JSON: what this revision changed in the one before, as a merge patch (RFC 7396)."""
    by: str
    at_s: float


class SharedMembers(msgspec.Struct, frozen=True, array_like=True):
    """How many members of a shared subscription one node, or one slot, has: connected, and with an offline client."""

    connected: int
    away: int


class DelayedMessage(msgspec.Struct, frozen=True, array_like=True):
    """A RetainedMessage with its topic. `client_id` and the fields after it describe the publisher, where known, as in
    `auth.stored_authorization.StoredAuthorization`: when the message is due, the publisher may not be allowed any
    more."""

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
    author: bytes = b""
    """As in RetainedMessage, of the connection or the will. b"": it isn't to be retained."""


def _int_key(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _pair(key: tuple[str, str]) -> bytes:
    """The first part contains no NUL, because the broker chooses it."""
    return f"{key[0]}\0{key[1]}".encode()


def _unpair(raw: bytes) -> tuple[str, str]:
    first, _, second = raw.decode().partition("\0")
    return first, second


def _fields(of: type[msgspec.Struct]) -> int:
    return len(of.__struct_fields__)


_pack = msgspec.msgpack.Encoder().encode


def _pack_retained(message: RetainedMessage) -> bytes:
    """Without an author and a user, encode as the first cluster version did."""
    first = (message.payload, message.qos, message.properties, message.version, message.expires_ms)
    if message.user is not None:
        return _pack(message)
    return _pack((*first, message.author) if message.author else first)


def _keeps_first(old: SettingsRevision, new: SettingsRevision) -> bool:
    return True


def _keeps_retained(old: RetainedMessage, new: RetainedMessage) -> bool:
    return is_overtaken(new.author, old.author)


NODES: Final[TableSpec[str, NodeInfo]] = TableSpec(
    1, "nodes", CLUSTER,
    split=lambda key, _: (key, b""),
    join=lambda owner, _: owner,
    encode=_pack, decode=msgspec.msgpack.Decoder(NodeInfo).decode, fields=_fields(NodeInfo),
)  # fmt: skip
"""incarnation → NodeInfo. Owned by that incarnation."""

SLOTS: Final[TableSpec[int, str]] = TableSpec(
    2, "slots", CLUSTER,
    split=lambda key, value: (value or "", key.to_bytes(2, "big")),
    join=lambda _, raw: _int_key(raw),
    encode=str.encode, decode=bytes.decode,
)  # fmt: skip
"""client slot → incarnation of the core that owns it. The row is owned by that incarnation."""

ALARMS: Final[TableSpec[str, Alarm]] = TableSpec(
    30, "alarms", CLUSTER,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(Alarm).decode, fields=_fields(Alarm),
    max_rows=bounds.ALARMS_MAX,
)  # fmt: skip
"""name → what an operator should look at. Outlives nodes, until the node that raised it or an operator ends it."""

VERSIONS: Final[TableSpec[str, RaisedVersion]] = TableSpec(
    64, "versions", CLUSTER,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(RaisedVersion).decode, fields=_fields(RaisedVersion),
)  # fmt: skip
""""cluster" → RaisedVersion, since cluster version 2. Outlives nodes."""

ROUTES: Final[TableSpec[tuple[bytes, str], None]] = TableSpec(
    3, "routes", ROUTE,
    split=split_owned, join=join_owned,
    encode=no_value, decode=nothing,
    buckets=256, max_rows=bounds.MAX_ROUTES,
)  # fmt: skip
"""(topic filter, incarnation that wants it) → nothing. Owned by that incarnation."""

SHARES: Final[TableSpec[tuple[bytes, str], SharedMembers]] = TableSpec(
    10, "shares", ROUTE,
    split=split_owned, join=join_owned,
    encode=_pack, decode=msgspec.msgpack.Decoder(SharedMembers).decode, fields=_fields(SharedMembers),
    buckets=256, max_rows=bounds.MAX_ROUTES,
)  # fmt: skip
"""(`$share/group/filter`, incarnation or `#slot` that has members) → how many. Owned by that incarnation or slot."""

CLAIMS: Final[TableSpec[tuple[bytes, str], bytes]] = TableSpec(
    11, "claims", ROUTE,
    split=split_owned, join=join_owned,
    encode=bytes, decode=bytes,
    buckets=256, max_rows=bounds.MAX_ROUTES,
)  # fmt: skip
"""(filter of an exclusive subscription, incarnation) → client id that claims it there. Owned by that incarnation. For
durable sessions, since cluster version 2: the key is `routes.exclusive_claim_table.durable_key`, owned by `#slot`, and
the row outlives nodes."""

MESSAGES: Final[TableSpec[bytes, RetainedMessage]] = TableSpec(
    4, "messages", RETAINED,
    split=split_plain, join=join_plain,
    encode=_pack_retained, decode=msgspec.msgpack.Decoder(RetainedMessage).decode, fields=_fields(RetainedMessage),
    buckets=1024, max_bytes=bounds.MAX_RETAINED_BYTES, keeps=_keeps_retained,
)  # fmt: skip
"""topic → retained message. Outlives nodes."""

DELAYED: Final[TableSpec[bytes, DelayedMessage]] = TableSpec(
    12, "delayed", RETAINED,
    split=split_plain, join=join_plain,
    encode=without_later(8), decode=msgspec.msgpack.Decoder(DelayedMessage).decode, fields=_fields(DelayedMessage),
    buckets=256, max_rows=bounds.DELAYED_MAX_MESSAGES, max_bytes=bounds.DELAYED_MAX_BYTES,
)  # fmt: skip
"""When it is due (milliseconds since the epoch, 8 bytes), when it was accepted (microseconds, 8 bytes; missing in the
first releases) and 8 random bytes → message. Outlives nodes."""

USERS: Final[TableSpec[str, User]] = TableSpec(
    5, "users", AUTH,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(User).decode, fields=_fields(User),
    buckets=256, max_rows=bounds.USERS_MAX,
)  # fmt: skip
"""user name or client id → User. Outlives nodes, as all rows of this shard do."""

RULES: Final[TableSpec[tuple[str, str], bytes]] = TableSpec(
    20, "rules", AUTH,
    split=lambda key, _: ("", _pair(key)),
    join=lambda _, raw: _unpair(raw),
    encode=bytes, decode=bytes,
    buckets=256, max_rows=bounds.RULED_MAX,
)  # fmt: skip
"""("username", "clientid" or "all", name) → a list of `config.auth_settings.RuleSettings` in JSON."""

BANS: Final[TableSpec[tuple[str, str], Ban]] = TableSpec(
    21, "bans", AUTH,
    split=lambda key, _: ("", _pair(key)),
    join=lambda _, raw: _unpair(raw),
    encode=_pack, decode=msgspec.msgpack.Decoder(Ban).decode, fields=_fields(Ban),
    buckets=256, max_rows=bounds.BANS_MAX,
)  # fmt: skip
"""(kind, value) → Ban. The kind is one of `auth.bans.KINDS`."""

IMPORTS: Final[TableSpec[str, ImportedFile]] = TableSpec(
    22, "imports", AUTH,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(ImportedFile).decode, fields=_fields(ImportedFile),
)  # fmt: skip
"""SHA-256 of a user file, in hex → ImportedFile."""

API_KEYS: Final[TableSpec[str, ApiKey]] = TableSpec(
    70, "api_keys", AUTH,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(ApiKey).decode, fields=_fields(ApiKey),
    max_rows=bounds.API_KEYS_MAX,
)  # fmt: skip
"""SHA-256 of a REST API key, in hex → ApiKey. Since cluster version 2."""

AUDIT: Final[TableSpec[str, AuditEntry]] = TableSpec(
    71, "audit", AUTH,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(AuditEntry).decode, fields=_fields(AuditEntry),
    max_rows=2 * bounds.AUDIT_MAX,
)  # fmt: skip
"""When (microseconds since the epoch, 18 digits) and 16 random hexadecimal digits → AuditEntry. Since cluster version
2."""

SECRETS: Final[TableSpec[str, bytes]] = TableSpec(
    72, "secrets", AUTH,
    split=split_text, join=join_text,
    encode=bytes, decode=bytes,
    max_rows=bounds.SECRETS_MAX,
)  # fmt: skip
"""Purpose (`auth.unknown_user_secret`) → random bytes that never change. Since cluster version 2."""

QUOTAS: Final[TableSpec[str, OwnQuotas]] = TableSpec(
    73, "quotas", AUTH,
    split=split_text, join=join_text,
    encode=_pack, decode=msgspec.msgpack.Decoder(OwnQuotas).decode, fields=_fields(OwnQuotas),
    max_rows=bounds.OWN_QUOTAS_MAX_USERS,
)  # fmt: skip
"""user name → OwnQuotas. Since cluster version 2."""

SETTINGS: Final[TableSpec[int, SettingsRevision]] = TableSpec(
    74, "settings", AUTH,
    split=lambda key, _: ("", key.to_bytes(8, "big")),
    join=lambda _, raw: _int_key(raw),
    encode=_pack, decode=msgspec.msgpack.Decoder(SettingsRevision).decode, fields=_fields(SettingsRevision),
    max_rows=2 * bounds.SETTINGS_REVISIONS_MAX, keeps=_keeps_first,
)  # fmt: skip
"""Number of the revision → SettingsRevision; the highest is the one in force. If two nodes write the same number, the
first in the log counts. Since cluster version 2."""
