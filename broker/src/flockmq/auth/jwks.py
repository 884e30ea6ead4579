"""The public keys of a token issuer, fetched over HTTP and refreshed (JWKS, RFC 7517).

Invariants: fetched keys stay until the next successful fetch. Clients' tokens can't make the broker ask the issuer more
often than every JWKS_RETRY_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

import aiohttp
import jwt
import msgspec

from flockmq.bounds import JWKS_MAX_BYTES, JWKS_RETRY_S
from flockmq.clock import SYSTEM, Clock

log: Final = logging.getLogger(__name__)
FETCH_MAX_S: Final = 5.0


class KeySet:
    def __init__(self, url: str, refresh_s: float, where: str, clock: Clock = SYSTEM) -> None:
        self._url = url
        self._refresh_s = refresh_s
        self._where = where
        self._clock = clock
        self._keys: dict[str | None, object] = {}
        self._asked_s = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, key_id: str | None) -> bool:
        return self.get(key_id) is not None

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, key_id: str | None) -> object:
        """The key with this id, or None. A token without a key id gets the only key, if there is exactly one."""
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    @property
    def may_ask(self) -> bool:
        return self._fetching is not None or self._clock.monotonic() - self._asked_s >= JWKS_RETRY_S

    async def start(self) -> None:
        """Returns after the first fetch, even if that failed; a failed fetch is repeated later."""
        await self.refresh()
        self._task = asyncio.ensure_future(self._keep_fresh())

    async def stop(self) -> None:
        for task in (self._task, self._fetching):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def refresh(self) -> None:
        """Fetch the keys. Concurrent callers share one fetch."""
        if self._fetching is None:
            self._asked_s = self._clock.monotonic()
            self._fetching = asyncio.ensure_future(self._fetch())
        await asyncio.shield(self._fetching)

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s if self._keys else min(JWKS_RETRY_S, self._refresh_s))
            await self.refresh()

    async def _fetch(self) -> None:
        try:
            timeout = aiohttp.ClientTimeout(total=FETCH_MAX_S)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(self._url, allow_redirects=False) as response,  # it might lead to a host without TLS
            ):
                if response.status != 200:
                    raise ValueError(f"it answers with status {response.status}, not 200")
                body = b""
                async for chunk in response.content.iter_chunked(16_384):
                    body += chunk
                    if len(body) > JWKS_MAX_BYTES:
                        raise ValueError(f"it has more than {JWKS_MAX_BYTES} bytes")
            self._keys = _parsed(body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError, msgspec.DecodeError) as error:
            log.warning("%s.endpoint: the keys can't be had: %s", self._where, _why(error))
        finally:
            self._fetching = None


def _why(error: Exception) -> str:
    """Describe the error for the log, without the path and the query of `endpoint`, which may hold secrets, and without
    the answer. aiohttp's message has all of them."""
    if isinstance(error, TimeoutError):
        return f"no answer within {FETCH_MAX_S:g} s"
    if isinstance(error, aiohttp.ClientResponseError):
        return "what it says is no HTTP"
    return str(error) or type(error).__name__


def _parsed(body: bytes) -> dict[str | None, object]:
    """The usable signature keys by key id. A key for which the issuer names an algorithm is used with that one only
    (RFC 7517, section 4.4). A key that can't be used is left out. Raises ValueError."""
    document = msgspec.json.decode(body, type=dict[str, object])
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise ValueError('it has no list "keys"')
    keys: dict[str | None, object] = {}
    for key in listed:
        if not isinstance(key, dict) or key.get("use", "sig") != "sig" or key.get("kty") == "oct":
            continue
        try:
            made = jwt.PyJWK(key)
        except Exception as error:  # PyJWT raises other errors than its own, too: for `alg` "none", or a list
            log.debug("a key of a key set can't be used: %s", type(error).__name__)
            continue
        if isinstance(made.key_id, str | None):
            keys[made.key_id] = made if "alg" in key else made.key
    if not keys:
        raise ValueError("it has no key for signatures that is known here")
    return keys
