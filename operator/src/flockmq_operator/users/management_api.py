"""The management API of one core, as much of it as MqttUsers need. It has the admin's key, so a connection is made for
one pass, to a pod that the operator found itself, and goes nowhere else: a redirect is no answer.

A request fails in one of two ways: `NodeRefuses`, when the node understood and said no (the message is its sentence),
or `NodeAway`, when it can't do it now; the first needs somebody to act, the second time.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from flockmq_operator.spec import Rule, said
from flockmq_operator.users.password import Password
from flockmq_operator.users.spec import UserRule

ASK_S = 15.0
"""The deadline of one request: a password may wait to be hashed."""
ANSWER_MAX_BYTES = 256 * 1024
"""A user's rules have 64 KiB at most."""
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


class SeenUser(NamedTuple):
    is_superuser: bool
    is_disabled: bool
    version: str
    """Another one whenever anything of the user changed; empty: an older node doesn't tell."""


class _User(msgspec.Struct, frozen=True):
    is_superuser: bool
    is_disabled: bool = False


class _Rules(msgspec.Struct, frozen=True):
    rules: tuple[Rule, ...]


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
    """`connected` makes one."""

    def __init__(self, http: aiohttp.ClientSession, access: Access) -> None:
        self._http = http
        self._access = access
        # One object: connections are kept by it.
        self._trust = aiohttp.Fingerprint(access.fingerprint) if access.fingerprint else True
        self._away = ""

    async def user(self, name: str) -> SeenUser | None:
        """None: there is no such user. Like all others raises NodeRefuses, NodeAway."""
        try:
            return await self._user("GET", _path("users", name))
        except NodeRefuses as refusal:
            _unless_missing(refusal)
            return None

    async def create(self, name: str, password: Password, *, superuser: bool, disabled: bool) -> SeenUser:
        body = {"user_id": name, "password": password.reveal(), "is_superuser": superuser, "is_disabled": disabled}
        return await self._user("POST", "/api/v1/users", body)

    async def change(self, name: str, password: Password | None, *, superuser: bool, disabled: bool) -> SeenUser:
        """`password` None: it stays."""
        body: dict[str, object] = {"is_superuser": superuser, "is_disabled": disabled}
        if password is not None:
            body["password"] = password.reveal()
        return await self._user("PUT", _path("users", name), body)

    async def delete(self, name: str) -> None:
        """One that isn't there is fine; so it is with rules."""
        await self._delete(_path("users", name))

    async def rules(self, name: str) -> tuple[Rule, ...]:
        try:
            answer, _ = await self._ask("GET", _path("rules", "username", name))
        except NodeRefuses as refusal:
            _unless_missing(refusal)
            return ()
        return _decoded(answer, _Rules).rules

    async def put_rules(self, name: str, rules: Sequence[UserRule]) -> None:
        await self._ask("PUT", _path("rules", "username", name), {"rules": [said(rule) for rule in rules]})

    async def delete_rules(self, name: str) -> None:
        await self._delete(_path("rules", "username", name))

    async def _delete(self, path: str) -> None:
        try:
            await self._ask("DELETE", path)
        except NodeRefuses as refusal:
            _unless_missing(refusal)

    async def _user(self, method: str, path: str, body: object = None) -> SeenUser:
        answer, version = await self._ask(method, path, body)
        user = _decoded(answer, _User)
        return SeenUser(user.is_superuser, user.is_disabled, version)

    async def _ask(self, method: str, path: str, body: object = None) -> tuple[bytes, str]:
        """The answer and its ETag. Once the node couldn't be reached nothing more is asked of it."""
        if self._away:
            raise NodeAway(self._away)
        try:
            async with self._http.request(
                method,
                URL(f"{self._access.url}{path}", encoded=True),
                data=None if body is None else msgspec.json.encode(body),
                headers={"Authorization": f"Bearer {self._access.key}", "Content-Type": "application/json"},
                allow_redirects=False,
                ssl=self._trust,
            ) as response:
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


@asynccontextmanager
async def connected(access: Access) -> AsyncIterator[ManagementApi]:
    connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX)
    timeout = aiohttp.ClientTimeout(total=ASK_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        yield ManagementApi(http, access)


def _path(*parts: str) -> str:
    return "/api/v1" + "".join(f"/{quote(part, safe='')}" for part in parts)


def _unless_missing(refusal: NodeRefuses) -> None:
    if refusal.status != 404:
        raise refusal


async def _read(response: aiohttp.ClientResponse) -> bytes:
    answer = b""
    async for chunk in response.content.iter_any():
        answer += chunk
        if len(answer) > ANSWER_MAX_BYTES:
            raise aiohttp.ClientPayloadError(f"an answer of more than {ANSWER_MAX_BYTES} bytes")
    return answer


def _decoded(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise NodeAway(f"its answer makes no sense: {error}") from None


def _sentence(answer: bytes) -> str:
    try:
        return msgspec.json.decode(answer, type=_Error).error
    except msgspec.DecodeError:
        return ""
