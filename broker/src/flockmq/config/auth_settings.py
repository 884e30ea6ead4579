"""The keys of `[authentication]`, `[authorization]` and `[flapping]`, with EMQX's names where it has them.

The configuration file contains no secrets, only the names of files that hold them. Keys that contradict each other
raise ValueError here, so a configuration that was loaded is valid.

    [authentication]
    allow_anonymous = false
    chain = [
      { mechanism = "jwt", algorithm = "public-key", endpoint = "https://id.example/jwks.json" },
      { mechanism = "password_based:built_in_database" },
    ]
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from flockmq.bounds import ARGON2_MAX_KIB, ARGON2_MAX_PASSES, BCRYPT_MAX_ROUNDS, PBKDF2_MAX_ITERATIONS
from flockmq.config.values import HttpUrl, Kind, RedisUrl, Seconds, Secret

Timeout = Annotated[float, Meta(ge=0.1, le=60.0), Kind.DURATION]
Interval = Annotated[float, Meta(ge=1.0, le=31_536_000.0), Kind.DURATION]
Connections = Annotated[int, Meta(ge=1, le=1000)]
Iterations = Annotated[int, Meta(ge=4096, le=PBKDF2_MAX_ITERATIONS)]

Permission = Literal["allow", "deny"]
UserIdType = Literal["username", "clientid"]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Authenticator(_Section, frozen=True, kw_only=True, tag_field="mechanism"):
    clientid: str | None = None
    """A template for the client ids that clients of this authenticator may use. `*` matches any text; `${username}`,
    `${cert_common_name}`, … are the client's values. A client without a client id gets one that matches."""


class _Source(_Section, frozen=True, kw_only=True, tag_field="type"):
    pass


# --- authentication -------------------------------------------------------------------------------------------------


class Argon2idSettings(_Section, frozen=True, kw_only=True, tag_field="name", tag="argon2id"):
    """The defaults are the minimum of OWASP's Password Storage Cheat Sheet: 19 MiB and 2 passes."""

    memory_kib: Annotated[int, Meta(ge=8192, le=ARGON2_MAX_KIB)] = 19 * 1024
    passes: Annotated[int, Meta(ge=1, le=ARGON2_MAX_PASSES)] = 2


class Pbkdf2Settings(_Section, frozen=True, kw_only=True, tag_field="name", tag="pbkdf2"):
    mac_fun: Literal["sha256", "sha512"] = "sha256"
    iterations: Iterations = 600_000


class BcryptSettings(_Section, frozen=True, kw_only=True, tag_field="name", tag="bcrypt"):
    salt_rounds: Annotated[int, Meta(ge=5, le=BCRYPT_MAX_ROUNDS)] = 10
    """Each further round doubles the work."""


HashAlgorithm = Argon2idSettings | Pbkdf2Settings | BcryptSettings


class BuiltInSettings(_Authenticator, frozen=True, kw_only=True, tag="password_based:built_in_database"):
    """Users in the cluster's log; see `/api/v1/users`."""

    user_id_type: UserIdType = "username"
    password_hash_algorithm: HashAlgorithm = Argon2idSettings()
    """The algorithm for new password hashes. Each stored hash names its own."""


class ScramSettings(_Authenticator, frozen=True, kw_only=True, tag="scram:built_in_database"):
    """Enhanced authentication with SCRAM-SHA-256 (RFC 5802, RFC 7677) of users in the cluster's log."""

    iteration_count: Iterations = 600_000
    """For new verifiers; each stored one has its own count. The client does the work. The default is from OWASP's
    Password Storage Cheat Sheet."""


class JwtSettings(_Authenticator, frozen=True, kw_only=True, tag="jwt"):
    """A signed token (RFC 7519) instead of a password. Needs one of `secret`, `public_key_file`, `endpoint`."""

    algorithm: Literal["hmac-based", "public-key"]
    secret: Secret | None = None
    """For hmac-based: the secret of HS256, HS384 and HS512."""
    secret_file: Path | None = None
    public_key_file: Path | None = None
    """For public-key: a file with a PEM key or certificate for RS*, PS*, ES* or EdDSA."""
    endpoint: HttpUrl | None = None
    """For public-key: the URL of the issuer's key set (JWKS, RFC 7517)."""
    refresh_interval: Interval = 300.0
    taken_from: Literal["password", "username"] = "password"
    require_exp: bool = False
    """Refuse a token without an expiry time."""
    audience: tuple[str, ...] = ()
    """Refuse a token whose `aud` is none of these. Empty: `aud` isn't checked."""
    verify_claims: dict[str, str] = {}
    """Claim → required value; may contain `${clientid}`, `${username}`, …"""
    acl_claim_name: str = "acl"
    disconnect_after_expire: bool = True

    def __post_init__(self) -> None:
        if self.algorithm == "hmac-based":
            if self.secret is None or self.public_key_file is not None or self.endpoint is not None:
                raise ValueError("algorithm hmac-based needs secret_file, and neither public_key_file nor endpoint")
        elif self.secret is not None or (self.public_key_file is None) == (self.endpoint is None):
            raise ValueError("algorithm public-key needs either public_key_file or endpoint, and no secret_file")


class _HttpRequest(_Section, frozen=True, kw_only=True):
    """The texts may contain `${clientid}`, `${username}`, `${peerhost}`, `${cert_common_name}`, …"""

    method: Literal["get", "post"] = "post"
    url: HttpUrl
    headers: dict[str, str] = {}
    headers_file: dict[str, Path] = {}
    """Secret headers: name → the file that holds the value."""
    authorization: Secret | None = None
    """The value of the `Authorization` header."""
    authorization_file: Path | None = None
    body: dict[str, str] = {}
    """Sent as the query (get) or as a JSON object (post)."""
    request_timeout: Timeout = 5.0
    connect_timeout: Timeout = 5.0
    pool_size: Connections = 8
    cacertfile: Path | None = None


class HttpSettings(_HttpRequest, frozen=True, kw_only=True, tag_field="mechanism", tag="password_based:http"):
    """An HTTP service decides: `{"result": "allow"|"deny"|"ignore", "is_superuser": …, "acl": […], "expire_at": …}`."""

    clientid: str | None = None
    """As in `_Authenticator`, from which this class can't inherit too."""
    body: dict[str, str] = msgspec.field(
        default_factory=lambda: {"clientid": "${clientid}", "username": "${username}", "password": "${password}"}
    )


class RedisAuthSettings(_Authenticator, frozen=True, kw_only=True, tag="password_based:redis"):
    """Users in a separate Redis, one hash per user."""

    url: RedisUrl
    password: Secret | None = None
    password_file: Path | None = None
    cmd: str = "HMGET mqtt_user:${username} password_hash is_superuser"
    """HMGET KEY FIELD…, with the field `password_hash` and optionally `salt` and `is_superuser`."""
    password_hash_algorithm: HashAlgorithm = Argon2idSettings()
    """The algorithm of hashes with a separate `salt` (pbkdf2, in hex), because these don't name it themselves. A wrong
    password of an unknown user takes as long as one is checked by it."""
    request_timeout: Timeout = 5.0
    pool_size: Connections = 8

    def __post_init__(self) -> None:
        words = self.cmd.split()
        if len(words) < 3 or words[0].upper() != "HMGET" or "password_hash" not in words[2:]:
            raise ValueError(f"cmd {self.cmd!r} must be HMGET KEY password_hash, and if wanted salt and is_superuser")
        if unknown := set(words[2:]) - {"password_hash", "salt", "is_superuser"}:
            raise ValueError(f"cmd asks for {', '.join(sorted(unknown))}; known: password_hash, salt, is_superuser")


class CertificateSettings(_Authenticator, frozen=True, kw_only=True, tag="cert"):
    """Accepts clients with a certificate that the listener has verified (`verify = "peer"`)."""

    username: Literal["cn", "dn"] = "cn"
    """The user name is the certificate's common name, or its whole subject."""


AuthenticatedAtOnce = BuiltInSettings | JwtSettings | HttpSettings | RedisAuthSettings | CertificateSettings
"""Authenticators that decide by the CONNECT packet alone."""
Authenticator = AuthenticatedAtOnce | ScramSettings


class FailedLoginsSettings(_Section, frozen=True, kw_only=True):
    """After `max_count` failed logins a client must wait before the next one: a second first, then twice as long each
    time, up to `max_wait`."""

    enable: bool = True
    max_count: Annotated[int, Meta(ge=1, le=1000)] = 5
    max_wait: Annotated[float, Meta(ge=1.0, le=3600.0), Kind.DURATION] = 30.0


class AuthenticationSettings(_Section, frozen=True, kw_only=True):
    """Who may connect. The first authenticator of the chain that knows the client decides."""

    allow_anonymous: bool | None = None
    """Whether clients without credentials may connect. If it isn't set: only from this machine, and only if the chain
    is empty."""
    chain: tuple[Authenticator, ...] = ()
    failed_logins: FailedLoginsSettings = FailedLoginsSettings()
    bootstrap_file: Path | None = None
    """A file of users (CSV or JSON) that a core imports into the cluster's log, once for each version of the file."""
    bootstrap_type: Literal["plain", "hash"] = "hash"
    """Whether the file holds passwords or hashes."""
    bootstrap_replace: bool = False
    """Whether an import overwrites existing users."""

    def __post_init__(self) -> None:
        if self.bootstrap_file is not None and not self.asks_the_log:
            raise ValueError(
                "bootstrap_file has users, but nothing in chain asks for them; add [[authentication.chain]] "
                'mechanism = "password_based:built_in_database"'
            )

    @property
    def asks_the_log(self) -> bool:
        """Whether the chain uses users in the log."""
        return any(isinstance(link, BuiltInSettings | ScramSettings) for link in self.chain)

    @property
    def asks_only_the_log(self) -> bool:
        """Whether all users are in the log, with their user names as keys."""
        return bool(self.chain) and all(
            isinstance(link, ScramSettings) or (isinstance(link, BuiltInSettings) and link.user_id_type == "username")
            for link in self.chain
        )


# --- authorization --------------------------------------------------------------------------------------------------


T = TypeVar("T")
Some = Annotated[
    tuple[T, ...], Meta(min_length=1, description="a list that isn't empty; without it the rule holds for all")
]


class RuleSettings(_Section, frozen=True, kw_only=True, omit_defaults=True):
    """One access rule. A key that isn't set matches everything. An empty list is refused, because it would do so too.

    A topic may contain `+`, `#`, `${clientid}` and `${username}`; `eq FILTER` matches exactly this text. For a
    subscription, an `allow` must cover the whole filter; a `deny` matches if it overlaps the filter.
    """

    permit: Permission
    action: Literal["publish", "subscribe", "all"] = "all"
    topics: Some[str] = ()
    qos: Some[Annotated[int, Meta(ge=0, le=2)]] = ()
    retain: bool | None = None
    """For publishes: matches messages with, or without, the RETAIN flag."""
    username: str | None = None
    clientid: str | None = None
    """`username` and `clientid` may be patterns with `*` and `?`."""
    ipaddr: Some[str] = ()
    """Addresses or networks (CIDR); one of them must match."""


class FileSourceSettings(_Source, frozen=True, kw_only=True, tag="file"):
    """Rules of this node. They are in `rules`, or in a TOML or JSON file with that key. The first that matches
    decides."""

    path: Path | None = None
    rules: tuple[RuleSettings, ...] = ()

    def __post_init__(self) -> None:
        if (self.path is None) == (not self.rules):
            raise ValueError("needs either path or rules")


class BuiltInSourceSettings(_Source, frozen=True, kw_only=True, tag="built_in_database"):
    """Rules in the cluster's log, for a client id, a user name, or all clients; see `/api/v1/rules`."""


class HttpSourceSettings(_Source, _HttpRequest, frozen=True, kw_only=True, tag="http"):
    """An HTTP service decides: `{"result": "allow"|"deny"|"ignore"}`. The texts may also contain `${action}`,
    `${topic}`, `${qos}`, `${retain}`."""

    body: dict[str, str] = msgspec.field(
        default_factory=lambda: {
            "clientid": "${clientid}",
            "username": "${username}",
            "action": "${action}",
            "topic": "${topic}",
        }
    )


Source = FileSourceSettings | BuiltInSourceSettings | HttpSourceSettings


class CacheSettings(_Section, frozen=True, kw_only=True):
    """The cache of decisions per client. A change of rules clears it."""

    max_size: Annotated[int, Meta(ge=1, le=10_000)] = 32
    ttl: Seconds = 60.0
    """0 disables the cache."""


class AuthorizationSettings(_Section, frozen=True, kw_only=True):
    """Who may publish and subscribe to what. The first source with a matching rule decides."""

    sources: tuple[Source, ...] = ()
    no_match: Permission | None = None
    """The decision if no rule matches. If it isn't set: deny if there are any rules, else allow."""
    deny_action: Literal["ignore", "disconnect"] = "ignore"
    """Whether a client that does something forbidden only gets the reason code, or is disconnected."""
    revoked_subscriptions: Literal["drop", "disconnect"] = "drop"
    """What happens to a subscription that a change of rules no longer allows: it ends, or its client is disconnected
    too, so that it notices."""
    cache: CacheSettings = CacheSettings()

    @property
    def asks_the_log(self) -> bool:
        """Whether rules in the log are used."""
        return any(isinstance(source, BuiltInSourceSettings) for source in self.sources)


# --- flapping -------------------------------------------------------------------------------------------------------


class FlappingSettings(_Section, frozen=True, kw_only=True):
    """A client (user name, client id and address together) that disconnects `max_count` times within `window_time` is
    banned for `ban_time`."""

    enable: bool = False
    max_count: Annotated[int, Meta(ge=2, le=1000)] = 15
    window_time: Interval = 60.0
    ban_time: Interval = 300.0
