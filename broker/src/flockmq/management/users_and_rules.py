"""REST API: users, rules and bans. All requests need an API key (see `guard`).

| path | GET | POST | PUT | DELETE |
|---|---|---|---|---|
| /api/v1/users | a page | creates a user | | |
| /api/v1/users/ID | the user | | changes it | deletes it |
| /api/v1/rules | a page | | | |
| /api/v1/rules/all | the rules for all clients | | replaces them | deletes them |
| /api/v1/rules/username/NAME, /api/v1/rules/clientid/ID | the rules | | replaces them | deletes them |
| /api/v1/bans | a page | creates or replaces a ban | | |
| /api/v1/bans/KIND/WHO | | | | deletes the ban |
| /api/v1/bans/lift | | the same for `{"as": KIND, "who": WHO}`, where WHO is too long for a path | | |

Lists are paged: `?limit=100&after=NEXT`, where NEXT is `next` of the previous page. A change is answered when this node
has applied it. Other nodes apply it when they read the log. An admin gets the version of a user as its ETag: who set a
password sees that somebody else did so since, without hashing it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar, cast

import msgspec
from aiohttp import web

from flockmq.auth.admin import Admin, AnsweredUser, NewBan, NewUser, OfKind, UserChange
from flockmq.config.auth_settings import RuleSettings
from flockmq.management.answers import ANY_TEXT, about, answer, body_of, check_query, limit_of
from flockmq.management.guard import holder_of

ADMIN: Final = web.AppKey("admin", Admin)

OF: Final = "{of:username|clientid}"

T = TypeVar("T")

routes = web.RouteTableDef()


class _Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[RuleSettings, ...]


class _LiftedBan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"of": "as"}):
    of: str
    who: str


# --- users ----------------------------------------------------------------------------------------------------------


@routes.get("/api/v1/users")
async def users(request: web.Request) -> web.Response:
    check_query(request, "limit", "after")
    return answer(200, request.app[ADMIN].users(request.query.get("after"), limit_of(request)))


@routes.post("/api/v1/users")
async def create_user(request: web.Request) -> web.Response:
    new = await body_of(request, NewUser)
    about(request, f"superuser {new.user_id}" if new.is_superuser else new.user_id)
    return _user(request, 201, await request.app[ADMIN].create_user(new))


@routes.get(f"/api/v1/users/{{user_id:{ANY_TEXT}}}")
async def user(request: web.Request) -> web.Response:
    return _user(request, 200, request.app[ADMIN].user(request.match_info["user_id"]))


@routes.put(f"/api/v1/users/{{user_id:{ANY_TEXT}}}")
async def change_user(request: web.Request) -> web.Response:
    change = await body_of(request, UserChange)
    about(request, ", ".join(_changed(change)))
    return _user(request, 200, await request.app[ADMIN].update_user(request.match_info["user_id"], change))


@routes.delete(f"/api/v1/users/{{user_id:{ANY_TEXT}}}")
async def delete_user(request: web.Request) -> web.Response:
    await request.app[ADMIN].delete_user(request.match_info["user_id"])
    return web.Response(status=204)


def _user(request: web.Request, status: int, user: AnsweredUser) -> web.Response:
    response = answer(status, user.shown)
    if holder_of(request).role == "admin":
        response.etag = user.version
    return response


# --- rules ----------------------------------------------------------------------------------------------------------


@routes.get("/api/v1/rules")
async def ruled(request: web.Request) -> web.Response:
    check_query(request, "limit", "after")
    return answer(200, request.app[ADMIN].ruled(request.query.get("after"), limit_of(request)))


@routes.get("/api/v1/rules/{of:all}")
@routes.get(f"/api/v1/rules/{OF}/{{who:{ANY_TEXT}}}")
async def rules(request: web.Request) -> web.Response:
    return answer(200, request.app[ADMIN].rules(*_whose(request)))


@routes.put("/api/v1/rules/{of:all}")
@routes.put(f"/api/v1/rules/{OF}/{{who:{ANY_TEXT}}}")
async def put_rules(request: web.Request) -> web.Response:
    body = await body_of(request, _Rules)
    about(request, f"{len(body.rules)} rules")
    return answer(200, await request.app[ADMIN].put_rules(*_whose(request), body.rules))


@routes.delete("/api/v1/rules/{of:all}")
@routes.delete(f"/api/v1/rules/{OF}/{{who:{ANY_TEXT}}}")
async def delete_rules(request: web.Request) -> web.Response:
    await request.app[ADMIN].delete_rules(*_whose(request))
    return web.Response(status=204)


# --- bans -----------------------------------------------------------------------------------------------------------


@routes.get("/api/v1/bans")
async def bans(request: web.Request) -> web.Response:
    check_query(request, "limit", "after")
    return answer(200, request.app[ADMIN].bans(request.query.get("after"), limit_of(request)))


@routes.post("/api/v1/bans")
async def put_ban(request: web.Request) -> web.Response:
    new = await body_of(request, NewBan)
    about(request, f"{new.of} {new.who}")
    return answer(201, await request.app[ADMIN].put_ban(new))


@routes.delete(f"/api/v1/bans/{{of}}/{{who:{ANY_TEXT}}}")
async def delete_ban(request: web.Request) -> web.Response:
    await request.app[ADMIN].delete_ban(request.match_info["of"], request.match_info["who"])
    return web.Response(status=204)


@routes.post("/api/v1/bans/lift")
async def lift_ban(request: web.Request) -> web.Response:
    ban = await body_of(request, _LiftedBan)
    about(request, f"{ban.of} {ban.who}")
    await request.app[ADMIN].delete_ban(ban.of, ban.who)
    return web.Response(status=204)


# --- reading requests -----------------------------------------------------------------------------------------------


def _changed(change: UserChange) -> Iterator[str]:
    if change.is_superuser is not None:
        yield "superuser" if change.is_superuser else "no superuser"
    if change.is_disabled is not None:
        yield "disabled" if change.is_disabled else "enabled"
    if change.password is not None or change.password_hash is not None:
        yield "password"


def _whose(request: web.Request) -> tuple[OfKind, str]:
    return cast(OfKind, request.match_info["of"]), request.match_info.get("who", "")
