"""Helpers of the REST API's handlers: reading requests and making responses."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, TypeVar

import msgspec
from aiohttp import web

from flockmq import strict_json
from flockmq.bounds import AUTH_PAGE_MAX, AUTH_REQUEST_MAX_BYTES, MANAGEMENT_REQUEST_MAX_S
from flockmq.management.view import Views

PAGE_DEFAULT: Final = 100
_LIMIT_MAX_DIGITS: Final = 9
"""Python converts no text of thousands of digits."""
ANY_TEXT: Final = "(?s:.+)"
"""The last part of a path, with slashes and line breaks: clients choose their ids, and users may have any name."""
T = TypeVar("T")


class RequestRefused(Exception):
    """The request is answered with this status. The message says what is wrong and what to change."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def answer(status: int, value: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value) + b"\n", content_type="application/json")


VIEWS: Final = web.AppKey("views", Views)
ABOUT: Final = web.RequestKey("about", str)


class StillAllowed(Protocol):
    def __call__(self) -> None:
        """Raises RequestRefused if the request's key was removed, or ran out, since the request began."""


STILL_ALLOWED: Final = web.RequestKey("still_allowed", StillAllowed)


def about(request: web.Request, what: str) -> None:
    """Set the text that the audit log shows for this request besides its path."""
    request[ABOUT] = what


async def body_of(request: web.Request, kind: type[T]) -> T:
    """Read and decode the body, and check the key again, because a body takes time. Raises RequestRefused."""
    try:
        async with asyncio.timeout(MANAGEMENT_REQUEST_MAX_S):
            raw = await request.clone(client_max_size=AUTH_REQUEST_MAX_BYTES).read()
    except TimeoutError:
        raise RequestRefused(408, f"the body didn't come within {MANAGEMENT_REQUEST_MAX_S:g} s") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise RequestRefused(400, f"the body can't be read to its end: {type(error).__name__}") from None
    if (check := request.get(STILL_ALLOWED)) is not None:
        check()
    try:
        return strict_json.decode(raw, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused(400, f"the body can't be used: {error}") from None


class _ClientIdBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    clientid: str


async def client_id_in_body(request: web.Request) -> str:
    """The client id in the body, for client ids that are too long for a path. Raises RequestRefused."""
    client_id = (await body_of(request, _ClientIdBody)).clientid
    about(request, client_id)
    return client_id


def shown(json: bytes) -> web.Response:
    return web.Response(body=json + b"\n", content_type="application/json")


def limit_of(request: web.Request) -> int:
    """The parameter `limit`. Raises RequestRefused."""
    text = request.query.get("limit", str(PAGE_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) <= _LIMIT_MAX_DIGITS and 1 <= int(text) <= AUTH_PAGE_MAX):
        raise RequestRefused(400, f"limit: {text!r} must be a number from 1 to {AUTH_PAGE_MAX}")
    return int(text)


def check_place(after: str | None) -> None:
    """Check the parameter `after` of a list of the whole cluster. Raises RequestRefused."""
    try:
        bytes.fromhex(after or "")
    except ValueError:
        raise RequestRefused(400, f"after: {after!r} must be what the page before said as next") from None


def check_query(request: web.Request, *known: str) -> None:
    """Refuse unknown parameters, because a misspelt filter would be ignored and show too much. Raises
    RequestRefused."""
    for name in request.query:
        if name not in known:
            raise RequestRefused(400, f"{name}: is no parameter of {request.path}; known are {', '.join(known)}")
