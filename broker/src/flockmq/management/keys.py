"""Keys of the REST API, and what was done with them, over HTTP (see `guard` for who may).

| path | GET | POST | DELETE |
|---|---|---|---|
| /api/v1/keys | all of them, without what they are | makes one, and shows it this once | |
| /api/v1/keys/NAME | | | it opens nothing any more |
| /api/v1/audit | a page of changes, the last ones first: `?limit=100&after=NEXT` | | |
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from flockmq.management.answers import about, answer, body_of, check_query, limit_of
from flockmq.management.api_keys import Keys, NewKey
from flockmq.management.audit_log import Audit
from flockmq.management.guard import holder_of

KEYS: Final = web.AppKey("keys", Keys)
AUDIT: Final = web.AppKey("audit", Audit)

routes = web.RouteTableDef()


@routes.get("/api/v1/keys")
async def keys(request: web.Request) -> web.Response:
    return answer(200, {"data": request.app[KEYS].shown()})


@routes.post("/api/v1/keys")
async def make(request: web.Request) -> web.Response:
    new = await body_of(request, NewKey)
    about(request, f"{new.name}: {new.role}")
    return answer(201, await request.app[KEYS].make(new, holder_of(request).name))


@routes.delete("/api/v1/keys/{name:.+}")
async def remove(request: web.Request) -> web.Response:
    await request.app[KEYS].remove(request.match_info["name"])
    return web.Response(status=204)


@routes.get("/api/v1/audit")
async def audit(request: web.Request) -> web.Response:
    check_query(request, "limit", "after")
    return answer(200, request.app[AUDIT].page(request.query.get("after"), limit_of(request)))
