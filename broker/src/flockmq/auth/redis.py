"""Authentication against users in a separate Redis (backend `redis`): one hash per user, with EMQX's field names."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Final

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, RedisError

from flockmq.auth import hashing
from flockmq.auth.addresses import network
from flockmq.auth.authenticator import ATTEMPT_VALUES, Attempt, Granted, Pass, Verdict
from flockmq.auth.built_in import WRONG, Passwords
from flockmq.auth.hash_pool import Busy
from flockmq.auth.http_service import WARNINGS_PER_S
from flockmq.auth.service_turns import Overloaded, ServiceTurns
from flockmq.auth.template import Template
from flockmq.bounds import ASKED_MAX, PASSWORD_MAX_BYTES
from flockmq.clock import Clock
from flockmq.config.auth_settings import RedisAuthSettings
from flockmq.errors import ConfigError
from flockmq.logs import Sparing
from flockmq.redis.redis_py import resettable

log: Final = logging.getLogger(__name__)


class RedisAuthenticator:
    def __init__(self, settings: RedisAuthSettings, where: str, passwords: Passwords, clock: Clock) -> None:
        self._settings = settings
        self._where = where
        self._passwords = passwords
        self._decoy = hashing.decoy(settings.password_hash_algorithm)
        _, key, *self._fields = settings.cmd.split()
        try:
            self._key = Template(key, [name for name in ATTEMPT_VALUES if name != "password"])
        except ValueError as error:
            raise ConfigError(f"{where}.cmd: {error}") from None
        self._client: redis.asyncio.Redis | None = None
        self._turns = ServiceTurns(settings.pool_size, ASKED_MAX)
        self._warnings = Sparing(log, WARNINGS_PER_S, clock.monotonic)

    async def start(self) -> None:
        settings = self._settings
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            settings.url,
            password=None if settings.password is None else settings.password.reveal(),
            max_connections=settings.pool_size,
            timeout=settings.request_timeout,
            socket_timeout=settings.request_timeout,
            socket_connect_timeout=settings.request_timeout,
            retry=Retry(NoBackoff(), 1, (ConnectionError,)),  # an idle connection may have been reset
        )
        pool.connection_class = resettable(pool.connection_class)
        self._client = redis.asyncio.Redis(connection_pool=pool)

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            await self._client.connection_pool.disconnect()

    def check(self, attempt: Attempt) -> Verdict | Coroutine[None, None, Verdict]:
        if attempt.password is None or any(attempt.value(name) is None for name in self._key.names):
            return Pass.UNKNOWN
        return self._checked(attempt, attempt.password)

    async def _checked(self, attempt: Attempt, password: bytes) -> Verdict:
        if self._client is None:
            return Pass.BUSY
        key = self._key.render(attempt.value)
        try:
            async with self._turns.turn(network(attempt.peer.host), self._settings.request_timeout):
                found = await self._client.hmget(key, self._fields)
        except Overloaded:
            return Pass.BUSY
        except (RedisError, OSError, TimeoutError) as error:
            self._warnings.warning("%s: Redis doesn't answer: %s", self._where, self._why(error))
            return Pass.UNAVAILABLE
        row = {name: _text(value) for name, value in zip(self._fields, found, strict=True) if value}
        stored = self._stored(row)
        if len(password) > PASSWORD_MAX_BYTES:  # perhaps a token for the next authenticator
            return Pass.UNKNOWN if stored is None else WRONG
        if stored is not None and self._passwords.knows(password, stored):
            return _granted(attempt, row)
        try:
            right = await self._passwords.is_right(attempt, password, key, stored, self._decoy)
        except Busy:
            return Pass.BUSY
        if stored is None:
            return Pass.UNKNOWN
        return _granted(attempt, row) if right else WRONG

    def _why(self, error: Exception) -> str:
        if isinstance(error, TimeoutError | redis.exceptions.TimeoutError):
            return f"nothing within request_timeout, {self._settings.request_timeout:g} s"
        return str(error) or type(error).__name__

    def _stored(self, row: dict[str, str]) -> str | None:
        digest = row.get("password_hash")
        if digest is None:
            return None
        try:
            return hashing.from_salted(digest, row.get("salt", ""), self._settings.password_hash_algorithm)
        except ValueError as error:
            self._warnings.warning("%s: a user's password_hash can't be used: %s", self._where, error)
            return None


def _granted(attempt: Attempt, row: dict[str, str]) -> Granted:
    return Granted(attempt.username or b"", is_superuser=row.get("is_superuser", "").lower() in ("1", "true"))


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")
