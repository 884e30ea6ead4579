"""Users, rules and bans over HTTP; all of it needs the API key (see `guard`).

| path | GET | POST | PUT | DELETE |
|---|---|---|---|---|
| /api/v1/users | a page | makes one | | |
| /api/v1/users/ID | it | | changes it | removes it |
| /api/v1/rules | a page | | | |
| /api/v1/rules/all, /api/v1/rules/username/NAME, /api/v1/rules/clientid/ID | them | | replaces them | removes them |
| /api/v1/bans | a page | makes or replaces one | | |
| /api/v1/bans/KIND/WHO | | | | lifts it |

Lists are paged: `?limit=100&after=NEXT`, where NEXT is what the page before said. A change is answered when this node
has it; each other has it when it has read the log.
"""

from __future__ import annotations

from typing import Final, TypeVar, cast

import msgspec
from aiohttp import web

from flockmq.auth.admin import Admin, NewBan, NewUser, OfKind, UserChange
from flockmq.auth.settings import Rule
from flockmq.bounds import AUTH_REQUEST_MAX_BYTES
from flockmq.management.answers import Refused, answer, limit_of

ADMIN: Final = web.AppKey("admin", Admin)

OF: Final = "{of:username|clientid}"

T = TypeVar("T")

routes = web.RouteTableDef()


class _Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[Rule, ...]


# --- users ----------------------------------------------------------------------------------------------------------


@routes.get("/api/v1/users")
async def users(request: web.Request) -> web.Response:
    return answer(200, request.app[ADMIN].users(request.query.get("after"), limit_of(request)))


@routes.post("/api/v1/users")
async def create_user(request: web.Request) -> web.Response:
    return answer(201, await request.app[ADMIN].create_user(await _body(request, NewUser)))


@routes.get("/api/v1/users/{user_id:.+}")
async def user(request: web.Request) -> web.Response:
    return answer(200, request.app[ADMIN].user(request.match_info["user_id"]))


@routes.put("/api/v1/users/{user_id:.+}")
async def change_user(request: web.Request) -> web.Response:
    change = await _body(request, UserChange)
    return answer(200, await request.app[ADMIN].update_user(request.match_info["user_id"], change))


@routes.delete("/api/v1/users/{user_id:.+}")
async def delete_user(request: web.Request) -> web.Response:
    await request.app[ADMIN].delete_user(request.match_info["user_id"])
    return web.Response(status=204)


# --- rules ----------------------------------------------------------------------------------------------------------


@routes.get("/api/v1/rules")
async def ruled(request: web.Request) -> web.Response:
    return answer(200, request.app[ADMIN].ruled(_after(request), limit_of(request)))


@routes.get("/api/v1/rules/{of:all}")
@routes.get(f"/api/v1/rules/{OF}/{{who:.+}}")
async def rules(request: web.Request) -> web.Response:
    return answer(200, request.app[ADMIN].rules(*_whose(request)))


@routes.put("/api/v1/rules/{of:all}")
@routes.put(f"/api/v1/rules/{OF}/{{who:.+}}")
async def put_rules(request: web.Request) -> web.Response:
    body = await _body(request, _Rules)
    return answer(200, await request.app[ADMIN].put_rules(*_whose(request), body.rules))


@routes.delete("/api/v1/rules/{of:all}")
@routes.delete(f"/api/v1/rules/{OF}/{{who:.+}}")
async def delete_rules(request: web.Request) -> web.Response:
    await request.app[ADMIN].delete_rules(*_whose(request))
    return web.Response(status=204)


# --- bans -----------------------------------------------------------------------------------------------------------


@routes.get("/api/v1/bans")
async def bans(request: web.Request) -> web.Response:
    return answer(200, request.app[ADMIN].bans(_after(request), limit_of(request)))


@routes.post("/api/v1/bans")
async def put_ban(request: web.Request) -> web.Response:
    return answer(201, await request.app[ADMIN].put_ban(await _body(request, NewBan)))


@routes.delete("/api/v1/bans/{of}/{who:.+}")
async def delete_ban(request: web.Request) -> web.Response:
    await request.app[ADMIN].delete_ban(request.match_info["of"], request.match_info["who"])
    return web.Response(status=204)


# --- what is asked for ----------------------------------------------------------------------------------------------


async def _body(request: web.Request, kind: type[T]) -> T:
    raw = await request.clone(client_max_size=AUTH_REQUEST_MAX_BYTES).read()
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(400, f"the body can't be used: {error}") from None


def _after(request: web.Request) -> tuple[str, str] | None:
    after = request.query.get("after")
    if after is None:
        return None
    kind, _, who = after.partition("/")
    return kind, who


def _whose(request: web.Request) -> tuple[OfKind, str]:
    return cast(OfKind, request.match_info["of"]), request.match_info.get("who", "")
