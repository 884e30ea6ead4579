"""REST API: quotas. The request needs an API key (see `guard`).

| path | answers |
|---|---|
| GET /api/v1/quotas | JSON: the limits per user, and the users with the highest usage, in the whole cluster |
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from flockmq.management.answers import answer
from flockmq.management.view import QuotasView

QUOTAS: Final = web.AppKey("quotas", QuotasView)

routes = web.RouteTableDef()


@routes.get("/api/v1/quotas")
async def quotas(request: web.Request) -> web.Response:
    return answer(200, request.app[QUOTAS].shown())
