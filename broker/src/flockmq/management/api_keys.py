"""API keys of the REST API. The role of a key determines what its holder may do.

    viewer     reads                                  (GET)
    operator   also manages what runs                 (clients, sessions, bans, alarms, plugins)
    admin      also manages access                    (users, rules, keys)

One admin key may be configured. It is used to create the others. The server generates these, and the log has their
SHA-256. A key has 32 random bytes, which nobody can guess. So, unlike passwords, it needs no slow hash, and a check is
one look-up.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from flockmq.auth.admin import LAST_YEAR, Invalid, Missing
from flockmq.bounds import API_KEY_MIN_BYTES, API_KEYS_MAX
from flockmq.clock import Clock
from flockmq.config.values import Secret, read_secret
from flockmq.errors import ConfigError
from flockmq.management.answers import RequestRefused
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import API_KEYS, AUTH, ApiKey

log: Final = logging.getLogger(__name__)

Role = Literal["viewer", "operator", "admin"]
ROLES: Final[tuple[Role, ...]] = ("viewer", "operator", "admin")
"""Each role includes the rights of those before it."""
CONFIGURED: Final = "management.api_key"
"""The name of the configured key, for example in the audit log."""
_FILE: Final = "management.api_key_file"
PREFIX: Final = "flockmq_"
"""All generated keys begin with this, so that secret scanners find them."""


class Holder(NamedTuple):
    name: str
    role: str


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key that is valid for `seconds` from now, `until` a time (RFC 3339), or for ever."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}\Z")]
    role: Role
    seconds: Annotated[float, Meta(gt=0, le=3.2e9)] | None = None
    until: datetime | None = None


class ShownKey(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    role: str
    at: datetime
    until: datetime | None
    by: str
    """The name of the key that created this one."""


class MadeKey(ShownKey, frozen=True, kw_only=True):
    """A new key. Only this response contains the key itself."""

    key: str


class ApiKeys:
    """`configured` is the admin key of the configuration, and `file` the file that it was read from and is reloaded
    from. `may_write` tells whether all nodes know this table. The constructor raises ConfigError."""

    def __init__(
        self,
        rlog: Rlog,
        configured: Secret | None,
        may_write: Callable[[], bool],
        clock: Clock,
        token_bytes: Callable[[int], bytes],
        file: Path | None = None,
    ) -> None:
        self._rlog = rlog
        self._configured = None if configured is None else _hash_of_configured(configured)
        self._file = file
        self._wrong = ""
        self._may_write = may_write
        self._clock = clock
        self._token_bytes = token_bytes
        self._making = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._rlog.tables.api_keys) + (self._configured is not None)

    def refresh(self) -> None:
        """Reload the file. If it is invalid, log that once, and keep the former key."""
        if self._file is None:
            return
        try:
            hashed = _hash_of_configured(read_secret(self._file, _FILE))
        except ConfigError as error:
            if self._wrong != (wrong := str(error)):
                self._wrong = wrong
                log.error("%s; the key from before stays", error)
            return
        self._wrong = ""
        if hashed != self._configured:
            self._configured = hashed
            log.info("%s: the key was read again, the one from before opens nothing any more", _FILE)

    def holder(self, presented: bytes) -> Holder | None:
        """The holder of a key; None if the key is unknown or expired."""
        hashed = _hash(presented)
        if self._configured is not None and compare_digest(hashed, self._configured):
            return Holder(CONFIGURED, "admin")
        key = self._rlog.tables.api_keys.get(hashed)
        if key is None or 0 < key.until_s <= self._clock.wall():
            return None
        return Holder(key.name, key.role)

    def shown(self) -> list[ShownKey]:
        """All keys by name, including expired ones."""
        rows = sorted(self._rlog.tables.api_keys.items(), key=lambda row: (row[1].name, row[0]))
        return [ShownKey(**_fields(key)) for _, key in rows]

    async def make(self, new: NewKey, by: str) -> MadeKey:
        """Create a key. Raises RequestRefused, Invalid, StorageError."""
        self._check_version()
        if new.name == CONFIGURED:
            raise Invalid("name", f"{CONFIGURED} is how the configured key is called; take another")
        async with self._making:  # until the table has it: the next one looks there
            table = self._rlog.tables.api_keys
            if len(table) >= API_KEYS_MAX:
                raise RequestRefused(507, f"there are {API_KEYS_MAX} keys already; remove one first")
            if any(key.name == new.name for _, key in table.items()):
                raise RequestRefused(409, f"key {new.name!r} is there already; remove it first, or take another name")
            drawn = PREFIX + urlsafe_b64encode(self._token_bytes(API_KEY_MIN_BYTES)).decode().rstrip("=")
            key = ApiKey(new.name, new.role, self._until_s(new), by, self._clock.wall())
            await self._rlog.write(AUTH, [API_KEYS.put(_hash(drawn.encode()), key)])
        return MadeKey(**_fields(key), key=drawn)

    async def remove(self, name: str) -> None:
        """Delete a key. Raises RequestRefused, Missing, StorageError."""
        self._check_version()
        hashes = [hashed for hashed, key in self._rlog.tables.api_keys.items() if key.name == name]
        if not hashes:
            raise Missing(f"there is no key {name!r}")
        await self._rlog.write(AUTH, [API_KEYS.delete(hashed) for hashed in hashes])

    def _check_version(self) -> None:
        if not self._may_write():
            why = "some nodes know of no keys in the log yet; try again when all of them are upgraded"
            raise RequestRefused(503, f"{why}, and cluster.version_settle is over")

    def _until_s(self, new: NewKey) -> float:
        now_s = self._clock.wall()
        if new.seconds is not None and new.until is not None:
            raise Invalid("until", "say either seconds or until")
        if new.seconds is not None:
            return now_s + new.seconds
        if new.until is None:
            return 0.0
        if new.until.tzinfo is None or new.until.year > LAST_YEAR:
            raise Invalid("until", f"must say its time zone, up to {LAST_YEAR}; for example 2030-01-01T00:00:00Z")
        if new.until.timestamp() <= now_s:
            raise Invalid("until", "is in the past")
        return new.until.timestamp()


def _hash_of_configured(key: Secret) -> str:
    """Raises ConfigError if the key is too short."""
    key_bytes = key.reveal().encode()
    if len(key_bytes) < API_KEY_MIN_BYTES:
        raise ConfigError(
            f"{_FILE}: the key must have at least {API_KEY_MIN_BYTES} bytes; make one at random, "
            f"for example: openssl rand -hex {API_KEY_MIN_BYTES}"
        )
    return _hash(key_bytes)


def _hash(key: bytes) -> str:
    return sha256(key).hexdigest()


def _fields(key: ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "role": key.role,
        "at": datetime.fromtimestamp(key.at_s, UTC),
        "until": datetime.fromtimestamp(key.until_s, UTC) if key.until_s else None,
        "by": key.by,
    }
