"""The HTTP client for authentication and authorization services. No answer, however wrong, late or long, harms the
broker.

Invariants:
- The service gets a client's values unchanged, or isn't asked. The request isn't sent if a value isn't UTF-8, can't
  stand in a header, or would change the URL's path ("", ".", ".."). So no client can pass for another.
- Those who have the service asked take turns (`service_turns`).
- Passwords are never logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from flockmq.auth.service_turns import Overloaded, ServiceTurns
from flockmq.auth.template import Template
from flockmq.bounds import ANSWER_MAX_BYTES, ASKED_MAX, LOGGED_MAX_CHARACTERS
from flockmq.clock import SYSTEM, Clock
from flockmq.config.auth_settings import HttpSettings, HttpSourceSettings
from flockmq.config.values import Secret, read_secret
from flockmq.errors import ConfigError
from flockmq.logs import Sparing
from flockmq.pem_files import reason, unreadable

log: Final = logging.getLogger(__name__)
WARNINGS_PER_S: Final = 1
NO_SEGMENTS: Final = ("", ".", "..")
"""Path segments that URL normalization removes, so the service would see another path."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2


class Unanswered(Exception):
    """The service couldn't be asked, or its answer is invalid."""


class ServiceAnswer(msgspec.Struct, frozen=True):
    """The answer of a service, with EMQX's field names."""

    result: str
    is_superuser: bool = False
    acl: object = None
    expire_at: float | None = None
    """Seconds since the epoch; None means never."""
    client_attrs: dict[str, str] = {}


class HttpService:
    """Call `ask` between `start` and `stop` only. The constructor raises ConfigError for invalid settings."""

    def __init__(
        self, settings: HttpSettings | HttpSourceSettings, known: tuple[str, ...], where: str, clock: Clock = SYSTEM
    ) -> None:
        self.settings = settings
        self.turns: Final = ServiceTurns(settings.pool_size, ASKED_MAX)
        self._where = where
        self._warnings = Sparing(log, WARNINGS_PER_S, clock.monotonic)
        self._session: aiohttp.ClientSession | None = None
        path, mark, query = settings.url.partition("?")
        self._path = [_template(segment, known, f"{where}.url") for segment in path.split("/")]
        self._query = _template(mark + query, known, f"{where}.url")
        self._body = {name: _template(text, known, f"{where}.body.{name}") for name, text in settings.body.items()}
        self._headers = {
            name: _template(text, known, f"{where}.headers.{name}") for name, text in settings.headers.items()
        }
        for key, names in (("headers", settings.headers), ("headers_file", settings.headers_file)):
            for name in names:
                if not _TOKEN.fullmatch(name):
                    raise ConfigError(f"{where}.{key}: {name!r} can't be the name of a header")
        self._secrets = _secret_headers(settings, where)
        self._tls: ssl.SSLContext | bool = True
        if settings.cacertfile is not None:
            try:
                self._tls = ssl.create_default_context(cafile=settings.cacertfile)
            except ssl.SSLError as error:
                why = f"{str(settings.cacertfile)!r} can't be used: {reason(error)}"
                raise ConfigError(f"{where}.cacertfile: {why}") from None
            except OSError as error:
                raise unreadable(f"{where}.cacertfile", settings.cacertfile, error) from None

    async def start(self) -> None:
        timeout = aiohttp.ClientTimeout(total=self.settings.request_timeout, connect=self.settings.connect_timeout)
        connector = aiohttp.TCPConnector(limit=self.settings.pool_size, ssl=self._tls)
        headers = {"Accept": "application/json"} | {name: text.reveal() for name, text in self._secrets.items()}
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=headers, cookie_jar=aiohttp.DummyCookieJar()
        )

    async def stop(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, value: Callable[[str], str | None], who: str) -> ServiceAnswer:
        """`value` returns the value of a placeholder, or raises ValueError. `who`: whose turn it takes. Raises
        Unanswered, Overloaded."""
        if self._session is None:
            raise Overloaded
        try:
            url, headers = self._url_for(value), self._headers_for(value)
            fields = {name: template.render(value) for name, template in self._body.items()}
        except ValueError as error:
            self._warnings.warning("%s: %s isn't asked: %s", self._where, self._host(), error)
            raise Unanswered from None
        try:
            return await self._ask_in_turn(self._session, who, url, headers, fields)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._warnings.warning("%s: %s doesn't answer: %s", self._where, self._host(), self._why(error))
            raise Unanswered from None

    def _url_for(self, value: Callable[[str], str | None]) -> URL:
        """Raises ValueError."""
        path = [segment.render(value, _quoted) for segment in self._path]
        for segment, text in zip(self._path, path, strict=True):
            if segment.names and text in NO_SEGMENTS:
                raise ValueError(f"{text!r} can't stand in a path, where url has ${{{segment.names[0]}}}")
        return URL("/".join(path) + self._query.render(value, _quoted), encoded=True)

    def _headers_for(self, value: Callable[[str], str | None]) -> dict[str, str]:
        """Raises ValueError."""
        headers = {name: template.render(value) for name, template in self._headers.items()}
        for name, text in headers.items():
            names = self._headers[name].names
            if names and (not text.isprintable() or text.strip() != text):
                shown = "the password" if "password" in names else repr(text[:LOGGED_MAX_CHARACTERS])
                raise ValueError(f"{shown} can't stand in the header {name}")
        return headers

    async def _ask_in_turn(
        self, session: aiohttp.ClientSession, who: str, url: URL, headers: dict[str, str], fields: dict[str, str]
    ) -> ServiceAnswer:
        async with asyncio.timeout(self.settings.request_timeout), contextlib.AsyncExitStack() as turn:
            try:
                await turn.enter_async_context(self.turns.turn(who, self.settings.connect_timeout))
            except TimeoutError:
                raise aiohttp.ConnectionTimeoutError from None
            return await self._ask(session, url, headers, fields)

    async def _ask(
        self, session: aiohttp.ClientSession, url: URL, headers: dict[str, str], fields: dict[str, str]
    ) -> ServiceAnswer:
        how = {"params": fields} if self.settings.method == "get" else {"json": fields}
        async with session.request(
            self.settings.method,
            url,
            headers=headers,
            allow_redirects=False,
            **how,  # type: ignore[arg-type]
        ) as response:
            if response.status == 204:
                return ServiceAnswer("allow")
            body = await response.content.read(ANSWER_MAX_BYTES + 1)
            while len(body) <= ANSWER_MAX_BYTES and (more := await response.content.read(ANSWER_MAX_BYTES)):
                body += more
        if response.status != 200 or len(body) > ANSWER_MAX_BYTES:
            why = f"status {response.status}" if response.status != 200 else f"more than {ANSWER_MAX_BYTES} bytes"
            self._warnings.warning("%s: %s answers with %s, not 200 or 204", self._where, self._host(), why)
            raise Unanswered
        try:
            return msgspec.json.decode(body, type=ServiceAnswer)
        except (msgspec.DecodeError, RecursionError) as error:
            self._warnings.warning("%s: %s answers with what can't be read: %s", self._where, self._host(), error)
            raise Unanswered from None

    def _why(self, error: Exception) -> str:
        """Describe the error for the log, without parts of the request, which aiohttp's messages may contain, and
        without the answer, which may repeat the request."""
        match error:
            case aiohttp.ConnectionTimeoutError():
                return f"no connection within connect_timeout, {self.settings.connect_timeout:g} s"
            case TimeoutError():
                return f"no answer within request_timeout, {self.settings.request_timeout:g} s"
            case aiohttp.ClientResponseError():
                return "what it says is no HTTP"
            case aiohttp.InvalidURL():
                return "url can't be used with what the client says"
        return str(error) or type(error).__name__

    def _host(self) -> str:
        """The service's URL without credentials, path and query, which may hold secrets."""
        return "/".join(self.settings.url.split("/", 3)[:3]).rpartition("@")[2]


def _template(text: str, known: tuple[str, ...], where: str) -> Template:
    try:
        return Template(text, known)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _secret_headers(settings: HttpSettings | HttpSourceSettings, where: str) -> dict[str, Secret]:
    """Headers whose values are read from files and never logged."""
    secrets = {} if settings.authorization is None else {"Authorization": settings.authorization}
    known = {name.lower(): name for name in settings.headers}
    for name, file in settings.headers_file.items():
        here = f"{where}.headers_file.{name}"
        if name.lower() == "authorization":
            raise ConfigError(f"{here}: stands in authorization_file; say it there")
        if name.lower() in known:
            raise ConfigError(f"{here}: stands beside headers.{known[name.lower()]}; say one of them")
        known[name.lower()] = name
        secrets[name] = read_secret(file, here)
        if not secrets[name].reveal().isprintable():
            raise ConfigError(f"{here}: {str(file)!r} holds what can't stand in a header")
    return secrets


def _quoted(text: str) -> str:
    return quote(text, safe="")
