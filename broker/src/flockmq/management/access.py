"""Users, rules and bans over HTTP. Everything here needs the key of `management.api_key_file`.

| path | GET | POST | PUT | DELETE |
|---|---|---|---|---|
| /api/v1/users | a page | makes one | | |
| /api/v1/users/ID | it | | changes it | removes it |
| /api/v1/rules | a page | | | |
| /api/v1/rules/all, /api/v1/rules/username/NAME, /api/v1/rules/clientid/ID | them | | replaces them | removes them |
| /api/v1/bans | a page | makes or replaces one | | |
| /api/v1/bans/KIND/WHO | | | | lifts it |

Lists are paged: `?limit=100&after=NEXT`, where NEXT is what the page before said. A change is answered when this node
has it; each other has it when it has read the log. What can't be done is answered with `{"error": …}`, which names the
field and the mend.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

import msgspec
from aiohttp import web

from flockmq.auth.admin import Admin, Exists, Invalid, Missing, NewBan, NewUser, OfKind, UserChange
from flockmq.auth.pool import Busy
from flockmq.auth.settings import Rule
from flockmq.bounds import AUTH_PAGE_MAX, AUTH_REQUEST_MAX_BYTES
from flockmq.config.values import Secret
from flockmq.rlog.errors import LogError, LogFull

ADMIN: Final = web.AppKey("admin", Admin)
API_KEY: Final = web.AppKey("api_key", Secret)

PAGE_DEFAULT: Final = 100
GUARDED: Final = (
    "/api/v1/users",
    "/api/v1/rules",
    "/api/v1/bans",
    "/api/v1/plugins/",
    "/api/v1/sessions/",
    "/api/v5/alarms/",
)
"""Whose paths begin so needs the key."""
OF: Final = "{of:username|clientid}"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")

routes = web.RouteTableDef()


class _Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[Rule, ...]


# --- users ----------------------------------------------------------------------------------------------------------


@routes.get("/api/v1/users")
async def users(request: web.Request) -> web.Response:
    return _json(200, request.app[ADMIN].users(request.query.get("after"), _limit(request)))


@routes.post("/api/v1/users")
async def create_user(request: web.Request) -> web.Response:
    return _json(201, await request.app[ADMIN].create_user(await _body(request, NewUser)))


@routes.get("/api/v1/users/{user_id:.+}")
async def user(request: web.Request) -> web.Response:
    return _json(200, request.app[ADMIN].user(request.match_info["user_id"]))


@routes.put("/api/v1/users/{user_id:.+}")
async def change_user(request: web.Request) -> web.Response:
    change = await _body(request, UserChange)
    return _json(200, await request.app[ADMIN].update_user(request.match_info["user_id"], change))


@routes.delete("/api/v1/users/{user_id:.+}")
async def delete_user(request: web.Request) -> web.Response:
    await request.app[ADMIN].delete_user(request.match_info["user_id"])
    return web.Response(status=204)


# --- rules ----------------------------------------------------------------------------------------------------------


@routes.get("/api/v1/rules")
async def ruled(request: web.Request) -> web.Response:
    return _json(200, request.app[ADMIN].ruled(_after(request), _limit(request)))


@routes.get("/api/v1/rules/{of:all}")
@routes.get(f"/api/v1/rules/{OF}/{{who:.+}}")
async def rules(request: web.Request) -> web.Response:
    return _json(200, request.app[ADMIN].rules(*_whose(request)))


@routes.put("/api/v1/rules/{of:all}")
@routes.put(f"/api/v1/rules/{OF}/{{who:.+}}")
async def put_rules(request: web.Request) -> web.Response:
    body = await _body(request, _Rules)
    return _json(200, await request.app[ADMIN].put_rules(*_whose(request), body.rules))


@routes.delete("/api/v1/rules/{of:all}")
@routes.delete(f"/api/v1/rules/{OF}/{{who:.+}}")
async def delete_rules(request: web.Request) -> web.Response:
    await request.app[ADMIN].delete_rules(*_whose(request))
    return web.Response(status=204)


# --- bans -----------------------------------------------------------------------------------------------------------


@routes.get("/api/v1/bans")
async def bans(request: web.Request) -> web.Response:
    return _json(200, request.app[ADMIN].bans(_after(request), _limit(request)))


@routes.post("/api/v1/bans")
async def put_ban(request: web.Request) -> web.Response:
    return _json(201, await request.app[ADMIN].put_ban(await _body(request, NewBan)))


@routes.delete("/api/v1/bans/{of}/{who:.+}")
async def delete_ban(request: web.Request) -> web.Response:
    await request.app[ADMIN].delete_ban(request.match_info["of"], request.match_info["who"])
    return web.Response(status=204)


# --- around every request -------------------------------------------------------------------------------------------


class _Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@web.middleware
async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Asks for the key where it is needed, and makes one sentence of what went wrong."""
    if not request.path.startswith(GUARDED):
        return await handler(request)
    try:
        _check_key(request)
        return await handler(request)
    except _Refused as error:
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
    except LogError as error:
        return _error(503, f"the log takes no writes now: {error}; try again later")


def _check_key(request: web.Request) -> None:
    key = request.app.get(API_KEY)
    if key is None:
        raise _Refused(403, "no API key is configured; name a file that holds one in management.api_key_file")
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(
        given.strip().encode(errors="surrogateescape"), key.reveal().encode()
    ):
        raise _Refused(401, "the API key is missing or wrong; send the header Authorization: Bearer KEY")


async def _body(request: web.Request, kind: type[T]) -> T:
    raw = await request.clone(client_max_size=AUTH_REQUEST_MAX_BYTES).read()
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _Refused(400, f"the body can't be used: {error}") from None


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(PAGE_DEFAULT))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= AUTH_PAGE_MAX:
        raise _Refused(400, f"limit: {text!r} must be a number from 1 to {AUTH_PAGE_MAX}")
    return int(text)


def _after(request: web.Request) -> tuple[str, str] | None:
    after = request.query.get("after")
    if after is None:
        return None
    kind, _, who = after.partition("/")
    return kind, who


def _whose(request: web.Request) -> tuple[OfKind, str]:
    return cast(OfKind, request.match_info["of"]), request.match_info.get("who", "")


def _json(status: int, value: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value) + b"\n", content_type="application/json")


def _error(status: int, why: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    body = msgspec.json.encode({"error": why}) + b"\n"
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
