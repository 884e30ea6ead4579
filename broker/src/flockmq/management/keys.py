"""REST API: API keys and the audit log (`guard` tells which roles may use them).

| path | GET | POST | DELETE |
|---|---|---|---|
| /api/v1/keys | all keys, without their secrets | creates a key; only this response shows it | |
| /api/v1/keys/NAME | | | deletes the key |
| /api/v1/audit | a page of changes, the latest first: `?limit=100&after=NEXT` | | |
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from flockmq.management.answers import ANY_TEXT, about, answer, body_of, check_query, limit_of
from flockmq.management.api_keys import ApiKeys, NewKey
from flockmq.management.audit_log import AuditLog
from flockmq.management.guard import holder_of

KEYS: Final = web.AppKey("keys", ApiKeys)
AUDIT: Final = web.AppKey("audit", AuditLog)

routes = web.RouteTableDef()


@routes.get("/api/v1/keys")
async def keys(request: web.Request) -> web.Response:
    return answer(200, {"data": request.app[KEYS].shown()})


@routes.post("/api/v1/keys")
async def make(request: web.Request) -> web.Response:
    new = await body_of(request, NewKey)
    about(request, f"{new.name}: {new.role}")
    return answer(201, await request.app[KEYS].make(new, holder_of(request).name))


@routes.delete(f"/api/v1/keys/{{name:{ANY_TEXT}}}")
async def remove(request: web.Request) -> web.Response:
    await request.app[KEYS].remove(request.match_info["name"])
    return web.Response(status=204)


@routes.get("/api/v1/audit")
async def audit(request: web.Request) -> web.Response:
    check_query(request, "limit", "after")
    return answer(200, request.app[AUDIT].page(request.query.get("after"), limit_of(request)))
