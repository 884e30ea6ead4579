"""REST API: quotas of users. All requests need an API key (see `guard`).

| path | GET | PUT | DELETE |
|---|---|---|---|
| /api/v1/quotas | the limits, the users with the highest usage, and a page of those with their own quotas | | |
| /api/v1/quotas/NAME | the user's own quotas | replaces them | deletes them |

The page is `data`: `?limit=100&after=NEXT`, where NEXT is `next` of the previous page. The body of a PUT has the
keys of the settings' section `[quotas]`; what it doesn't say is as in the settings.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec
from aiohttp import web

from flockmq.config.conversion import read
from flockmq.config.schema import QuotasSettings
from flockmq.errors import ConfigError
from flockmq.management.answers import ANY_TEXT, VIEWS, RequestRefused, about, answer, body_of, check_query, limit_of
from flockmq.management.quota_admin import QuotaAdmin

ADMIN: Final = web.AppKey("quota_admin", QuotaAdmin)

routes = web.RouteTableDef()


@routes.get("/api/v1/quotas")
async def quotas(request: web.Request) -> web.Response:
    check_query(request, "limit", "after")
    shown = request.app[VIEWS].quotas.shown()
    page = request.app[ADMIN].page(request.query.get("after"), limit_of(request))
    return answer(200, msgspec.structs.asdict(shown) | msgspec.structs.asdict(page))


@routes.get(f"/api/v1/quotas/{{name:{ANY_TEXT}}}")
async def own_quotas(request: web.Request) -> web.Response:
    return answer(200, request.app[ADMIN].of(request.match_info["name"]))


@routes.put(f"/api/v1/quotas/{{name:{ANY_TEXT}}}")
async def put_quotas(request: web.Request) -> web.Response:
    given = await body_of(request, dict[str, object])
    try:
        settings = cast(QuotasSettings, read(given, QuotasSettings, "quotas"))
    except ConfigError as error:
        raise RequestRefused(400, str(error)) from None
    about(request, ", ".join(f"{key} {value}" for key, value in given.items()))
    return answer(200, await request.app[ADMIN].put(request.match_info["name"], settings))


@routes.delete(f"/api/v1/quotas/{{name:{ANY_TEXT}}}")
async def delete_quotas(request: web.Request) -> web.Response:
    await request.app[ADMIN].remove(request.match_info["name"])
    return web.Response(status=204)
