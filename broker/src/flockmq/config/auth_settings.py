"""The shape of `[authentication]`, `[authorization]` and `[flapping]`, by EMQX's names where it has them.

A secret is never written into the configuration: a key names the file that holds it. Keys that don't fit together raise
ValueError here, so that a configuration that was read can be used.

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
    """Which client ids its clients may have: `*` stands for any letters, `${username}`, `${cert_common_name}`, … for
    the client's. A client that gives no id gets one that fits."""


class _Source(_Section, frozen=True, kw_only=True, tag_field="type"):
    pass


# --- authentication -------------------------------------------------------------------------------------------------


class Argon2idSettings(_Section, frozen=True, kw_only=True, tag_field="name", tag="argon2id"):
    """By default the least that OWASP's Password Storage Cheat Sheet asks for: 19 MiB and 2 passes."""

    memory_kib: Annotated[int, Meta(ge=8192, le=ARGON2_MAX_KIB)] = 19 * 1024
    passes: Annotated[int, Meta(ge=1, le=ARGON2_MAX_PASSES)] = 2


class Pbkdf2Settings(_Section, frozen=True, kw_only=True, tag_field="name", tag="pbkdf2"):
    mac_fun: Literal["sha256", "sha512"] = "sha256"
    iterations: Iterations = 600_000


class BcryptSettings(_Section, frozen=True, kw_only=True, tag_field="name", tag="bcrypt"):
    salt_rounds: Annotated[int, Meta(ge=5, le=BCRYPT_MAX_ROUNDS)] = 10
    """The work doubles with each."""


HashAlgorithm = Argon2idSettings | Pbkdf2Settings | BcryptSettings


class BuiltInSettings(_Authenticator, frozen=True, kw_only=True, tag="password_based:built_in_database"):
    """Users in the cluster's own log; see `/api/v1/users`."""

    user_id_type: UserIdType = "username"
    password_hash_algorithm: HashAlgorithm = Argon2idSettings()
    """How passwords are hashed from now on; each stored hash says how it was made."""


class ScramSettings(_Authenticator, frozen=True, kw_only=True, tag="scram:built_in_database"):
    """Enhanced authentication by SCRAM-SHA-256 (RFC 5802, RFC 7677) of the users in the cluster's own log."""

    iteration_count: Iterations = 600_000
    """For verifiers that are made from now on; each stored one says its own. The client does the work. The default is
    that of OWASP's Password Storage Cheat Sheet."""


class JwtSettings(_Authenticator, frozen=True, kw_only=True, tag="jwt"):
    """A signed token (RFC 7519) in place of a password. One of `secret`, `public_key_file`, `endpoint`."""

    algorithm: Literal["hmac-based", "public-key"]
    secret: Secret | None = None
    """hmac-based: of HS256, HS384 and HS512."""
    secret_file: Path | None = None
    public_key_file: Path | None = None
    """public-key: holds a PEM key or certificate for RS*, PS*, ES* or EdDSA."""
    endpoint: HttpUrl | None = None
    """public-key: where the issuer's key set (JWKS, RFC 7517) is fetched."""
    refresh_interval: Interval = 300.0
    taken_from: Literal["password", "username"] = "password"
    require_exp: bool = False
    """Refuse a token that doesn't say when it ends."""
    audience: tuple[str, ...] = ()
    """Refuse a token whose `aud` is none of these; empty: it isn't looked at."""
    verify_claims: dict[str, str] = {}
    """Claim → what it must be; `${clientid}` and `${username}` stand for the client's."""
    acl_claim_name: str = "acl"
    disconnect_after_expire: bool = True

    def __post_init__(self) -> None:
        if self.algorithm == "hmac-based":
            if self.secret is None or self.public_key_file is not None or self.endpoint is not None:
                raise ValueError("algorithm hmac-based needs secret_file, and neither public_key_file nor endpoint")
        elif self.secret is not None or (self.public_key_file is None) == (self.endpoint is None):
            raise ValueError("algorithm public-key needs either public_key_file or endpoint, and no secret_file")


class _HttpRequest(_Section, frozen=True, kw_only=True):
    """`${clientid}`, `${username}`, `${peerhost}`, `${cert_common_name}`, … stand for the client's."""

    method: Literal["get", "post"] = "post"
    url: HttpUrl
    headers: dict[str, str] = {}
    headers_file: dict[str, Path] = {}
    """Headers that are secret, and the file that holds the value of each."""
    authorization: Secret | None = None
    """The value of the header `Authorization`."""
    authorization_file: Path | None = None
    body: dict[str, str] = {}
    """What is sent: a query (get) or a JSON object (post)."""
    request_timeout: Timeout = 5.0
    connect_timeout: Timeout = 5.0
    pool_size: Connections = 8
    cacertfile: Path | None = None


class HttpSettings(_HttpRequest, frozen=True, kw_only=True, tag_field="mechanism", tag="password_based:http"):
    """Another service decides: `{"result": "allow"|"deny"|"ignore", "is_superuser": …, "acl": […], "expire_at": …}`."""

    clientid: str | None = None
    """As `_Authenticator` has it, which can't be inherited beside a request's keys."""
    body: dict[str, str] = msgspec.field(
        default_factory=lambda: {"clientid": "${clientid}", "username": "${username}", "password": "${password}"}
    )


class RedisSettings(_Authenticator, frozen=True, kw_only=True, tag="password_based:redis"):
    """Users in a Redis of yours, as hashes."""

    url: RedisUrl
    password: Secret | None = None
    password_file: Path | None = None
    cmd: str = "HMGET mqtt_user:${username} password_hash is_superuser"
    """HMGET KEY FIELD…, with the fields `password_hash` and, if wanted, `salt` and `is_superuser`."""
    password_hash_algorithm: HashAlgorithm = Argon2idSettings()
    """How hashes were made that stand beside a `salt` (pbkdf2, in hex), because they don't say so themselves."""
    request_timeout: Timeout = 5.0
    pool_size: Connections = 8

    def __post_init__(self) -> None:
        words = self.cmd.split()
        if len(words) < 3 or words[0].upper() != "HMGET" or "password_hash" not in words[2:]:
            raise ValueError(f"cmd {self.cmd!r} must be HMGET KEY password_hash, and if wanted salt and is_superuser")
        if unknown := set(words[2:]) - {"password_hash", "salt", "is_superuser"}:
            raise ValueError(f"cmd asks for {', '.join(sorted(unknown))}; known: password_hash, salt, is_superuser")


class CertificateSettings(_Authenticator, frozen=True, kw_only=True, tag="cert"):
    """A client certificate that the listener verified (`verify = "peer"`) is enough."""

    username: Literal["cn", "dn"] = "cn"
    """What the user name is taken from: the common name or the whole subject."""


AuthenticatedAtOnce = BuiltInSettings | JwtSettings | HttpSettings | RedisSettings | CertificateSettings
"""These decide by what CONNECT says."""
Authenticator = AuthenticatedAtOnce | ScramSettings


class FailedLoginsSettings(_Section, frozen=True, kw_only=True):
    """After `max_count` wrong credentials a client must wait before it is tried again: for a second, and twice as long
    each further time, up to `max_wait`."""

    enable: bool = True
    max_count: Annotated[int, Meta(ge=1, le=1000)] = 5
    max_wait: Annotated[float, Meta(ge=1.0, le=3600.0), Kind.DURATION] = 30.0


class AuthenticationSettings(_Section, frozen=True, kw_only=True):
    """Who may connect. The first of the chain that knows the client decides."""

    allow_anonymous: bool | None = None
    """Whether clients without any credentials may connect. Not said: from this machine only, and only while there is
    no chain."""
    chain: tuple[Authenticator, ...] = ()
    failed_logins: FailedLoginsSettings = FailedLoginsSettings()
    bootstrap_file: Path | None = None
    """Users (CSV or JSON) that a core puts into the cluster's log, once for each content of the file."""
    bootstrap_type: Literal["plain", "hash"] = "hash"
    """Whether the file holds passwords or their hashes."""
    bootstrap_replace: bool = False
    """Whether users that are there already are changed to what the file says, whenever its content changes."""

    def __post_init__(self) -> None:
        if self.bootstrap_file is not None and not self.asks_the_log:
            raise ValueError(
                "bootstrap_file has users, but nothing in chain asks for them; add [[authentication.chain]] "
                'mechanism = "password_based:built_in_database"'
            )

    @property
    def asks_the_log(self) -> bool:
        """Whether users of the log can log in."""
        return any(isinstance(link, BuiltInSettings | ScramSettings) for link in self.chain)

    @property
    def asks_only_the_log(self) -> bool:
        """Whether only users of the log, by their user names, are let in with a name."""
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
    """What one rule permits or denies to whom. A key that isn't said holds for all. An empty list would, too, so it is
    refused.

    A topic may hold `+`, `#`, `${clientid}` and `${username}`; `eq FILTER` means exactly these letters. To subscribe
    to a filter, an `allow` must cover all of it; a `deny` holds as soon as it overlaps.
    """

    permit: Permission
    action: Literal["publish", "subscribe", "all"] = "all"
    topics: Some[str] = ()
    qos: Some[Annotated[int, Meta(ge=0, le=2)]] = ()
    retain: bool | None = None
    """Publishes only: those that are retained, or that are not."""
    username: str | None = None
    clientid: str | None = None
    """Also `username` and `clientid`: a pattern with `*` and `?`."""
    ipaddr: Some[str] = ()
    """Addresses or networks (CIDR), any of them."""


class FileSourceSettings(_Source, frozen=True, kw_only=True, tag="file"):
    """Rules of this node; the first that fits decides. They are in `rules`, or in a TOML or JSON file with that key."""

    path: Path | None = None
    rules: tuple[RuleSettings, ...] = ()

    def __post_init__(self) -> None:
        if (self.path is None) == (not self.rules):
            raise ValueError("needs either path or rules")


class BuiltInSourceSettings(_Source, frozen=True, kw_only=True, tag="built_in_database"):
    """Rules in the cluster's log, of a client id, of a user name, and of all; see `/api/v1/rules`."""


class HttpSourceSettings(_Source, _HttpRequest, frozen=True, kw_only=True, tag="http"):
    """Another service decides: `{"result": "allow"|"deny"|"ignore"}`. `${action}`, `${topic}`, `${qos}`, `${retain}`
    stand for what is tried."""

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
    """Answers that are kept for each client; a change of rules forgets them."""

    max_size: Annotated[int, Meta(ge=1, le=10_000)] = 32
    ttl: Seconds = 60.0
    """0: nothing is kept."""


class AuthorizationSettings(_Section, frozen=True, kw_only=True):
    """Who may publish and subscribe to what. The first source with a rule that fits decides."""

    sources: tuple[Source, ...] = ()
    no_match: Permission | None = None
    """When nothing fits. Not said: deny, as soon as there are rules to go by."""
    deny_action: Literal["ignore", "disconnect"] = "ignore"
    """Whether a client that tries what it may not is only told so, or disconnected."""
    revoked_subscriptions: Literal["drop", "disconnect"] = "drop"
    """What happens when a change of rules no longer allows a subscription: it ends, or its client is disconnected, too,
    and so hears of it."""
    cache: CacheSettings = CacheSettings()

    @property
    def asks_the_log(self) -> bool:
        """Whether rules of the log are looked at."""
        return any(isinstance(source, BuiltInSourceSettings) for source in self.sources)


# --- flapping -------------------------------------------------------------------------------------------------------


class FlappingSettings(_Section, frozen=True, kw_only=True):
    """A client (its user name, client id and address together) that was disconnected `max_count` times within
    `window_time` is banned for `ban_time`."""

    enable: bool = False
    max_count: Annotated[int, Meta(ge=2, le=1000)] = 15
    window_time: Interval = 60.0
    ban_time: Interval = 300.0
