"""The management API of one core. It has the admin's key, so a connection is made for one pass, to a pod that the
operator found itself, and goes nowhere else: a redirect is no answer.

A request fails in one of two ways: `NodeRefuses`, when the node understood and said no (the message is its sentence),
or `NodeAway`, when it can't do it now; the first needs somebody to act, the second time. What is asked is in
`users.api` and `rebalances.api`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from flockmq_operator.slots import asking

ASK_S = 15.0
"""The deadline of one request: a password may wait to be hashed."""
ANSWER_MAX_BYTES = 1024 * 1024
"""A user's rules have 64 KiB at most, the rows of 1,007 nodes half of this."""
CONNECTIONS_MAX = 4
"""Requests at a time; a core hashes two passwords at a time."""
AWAY = (408, 429)
"""Beside 500 and above: what a node says that may do it later."""

T = TypeVar("T")


class NodeRefuses(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NodeAway(Exception):
    pass


class _Error(msgspec.Struct, frozen=True):
    error: str


class Access(NamedTuple):
    """Where a core's management API is, and what opens it."""

    url: str
    key: str
    fingerprint: bytes | None
    """SHA-256 of the certificate that it must show; None: it has no TLS."""

    def __repr__(self) -> str:
        return f"Access({self.url!r}, …)"


class ManagementApi:
    """`connected` makes one, of a class that knows what to ask."""

    def __init__(self, http: aiohttp.ClientSession, access: Access) -> None:
        self._http = http
        self._access = access
        # One object: connections are kept by it.
        self._trust = aiohttp.Fingerprint(access.fingerprint) if access.fingerprint else True
        self._away = ""

    async def ask(self, method: str, path: str, body: object = None) -> tuple[bytes, str]:
        """The answer and its ETag. Once the node couldn't be reached nothing more is asked of it. Raises NodeRefuses,
        NodeAway."""
        if self._away:
            raise NodeAway(self._away)
        try:
            async with (
                asking(),
                self._http.request(
                    method,
                    URL(f"{self._access.url}{path}", encoded=True),
                    data=None if body is None else msgspec.json.encode(body),
                    headers={"Authorization": f"Bearer {self._access.key}", "Content-Type": "application/json"},
                    allow_redirects=False,
                    ssl=self._trust,
                ) as response,
            ):
                answer = await _read(response)
                if response.status < 300:
                    return answer, response.headers.get("ETag", "")
        except aiohttp.ServerFingerprintMismatch:
            self._away = (
                f"{self._access.url} shows another certificate than its Secret holds: pods get it a minute later"
            )
            raise NodeAway(self._away) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._away = f"{self._access.url} doesn't answer: {str(error) or type(error).__name__}"
            raise NodeAway(self._away) from None
        sentence = _sentence(answer) or f"HTTP {response.status}"
        if response.status >= 500 or response.status in AWAY:
            raise NodeAway(f"{self._access.url}: {sentence}")
        raise NodeRefuses(response.status, sentence)

    async def delete_path(self, path: str) -> None:
        try:
            await self.ask("DELETE", path)
        except NodeRefuses as refusal:
            unless_missing(refusal)


A = TypeVar("A", bound=ManagementApi)


@asynccontextmanager
async def connected(access: Access, kind: type[A]) -> AsyncIterator[A]:
    connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX)
    timeout = aiohttp.ClientTimeout(total=ASK_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        yield kind(http, access)


def path_to(*parts: str) -> str:
    return "/api/v1" + "".join(f"/{quote(part, safe='')}" for part in parts)


def unless_missing(refusal: NodeRefuses) -> None:
    if refusal.status != 404:
        raise refusal


async def _read(response: aiohttp.ClientResponse) -> bytes:
    answer = b""
    async for chunk in response.content.iter_any():
        answer += chunk
        if len(answer) > ANSWER_MAX_BYTES:
            raise aiohttp.ClientPayloadError(f"an answer of more than {ANSWER_MAX_BYTES} bytes")
    return answer


def decoded(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise NodeAway(f"its answer makes no sense: {error}") from None


def _sentence(answer: bytes) -> str:
    try:
        return msgspec.json.decode(answer, type=_Error).error
    except msgspec.DecodeError:
        return ""
