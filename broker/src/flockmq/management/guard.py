"""What stands around every request of the management server: the key, where one is needed, and words for failures.

What can't be done is answered with `{"error": …}`, which names the field and the mend.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

from flockmq.auth.admin import Exists, Invalid, Missing
from flockmq.auth.pool import Busy
from flockmq.bounds import AUTH_REQUEST_MAX_BYTES
from flockmq.config.values import Secret
from flockmq.management.answers import Refused
from flockmq.management.view import Unavailable
from flockmq.rlog.errors import LogError, LogFull

API_KEY: Final = web.AppKey("api_key", Secret)
GUARDED: Final = (
    "/api/v1/users",
    "/api/v1/rules",
    "/api/v1/bans",
    "/api/v1/plugins/",
    "/api/v1/clients",
    "/api/v1/sessions",
    "/api/v5/alarms/",
)
"""Whose paths begin so needs the key."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def in_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """One sentence of what went wrong."""
    try:
        return await handler(request)
    except Refused as error:
        return _error(error.status, str(error))
    except Invalid as error:
        return _error(400, str(error))
    except Missing as error:
        return _error(404, str(error))
    except Exists as error:
        return _error(409, f"{error}; change it with PUT")
    except web.HTTPRequestEntityTooLarge:
        return _error(413, f"the body may have {AUTH_REQUEST_MAX_BYTES} bytes at most")
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        return _error(error.status, f"{request.method} {request.path}: {error.reason}")
    except Busy:
        return _error(503, "too many passwords wait to be hashed; try again later")
    except LogFull as error:
        return _error(507, str(error))
    except Unavailable as error:
        return _error(503, f"{error}; try again later")
    except LogError as error:
        return _error(503, f"the log takes no writes now: {error}; try again later")


@web.middleware
async def with_key(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.path.startswith(GUARDED):
        _check_key(request)
    return await handler(request)


def _check_key(request: web.Request) -> None:
    key = request.app.get(API_KEY)
    if key is None:
        raise Refused(403, "no API key is configured; name a file that holds one in management.api_key_file")
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(
        given.strip().encode(errors="surrogateescape"), key.reveal().encode()
    ):
        raise Refused(401, "the API key is missing or wrong; send the header Authorization: Bearer KEY")


def _error(status: int, why: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    body = msgspec.json.encode({"error": why}) + b"\n"
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
