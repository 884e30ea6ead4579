"""REST API: the cluster's alarms.

| path | answers |
|---|---|
| GET /api/v5/alarms | JSON: all alarms, the oldest first |
| DELETE /api/v5/alarms/NAME | ends an alarm; needs an API key (see `guard`) |
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from flockmq.management.answers import answer
from flockmq.management.view import AlarmsView

ALARMS: Final = web.AppKey("alarms", AlarmsView)

routes = web.RouteTableDef()


@routes.get("/api/v5/alarms")
async def alarms(request: web.Request) -> web.Response:
    return answer(200, request.app[ALARMS].rows())


@routes.delete("/api/v5/alarms/{name:.+}")
async def end(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if not await request.app[ALARMS].end(name):
        return answer(404, {"error": f"there is no alarm {name!r}; GET /api/v5/alarms lists them"})
    return web.Response(status=204)
