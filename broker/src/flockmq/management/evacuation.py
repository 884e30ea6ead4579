"""REST API: evacuation, which sends all clients of this node to other nodes while it keeps running. All requests need
an API key (see `guard`).

| path | answers |
|---|---|
| GET /api/v1/evacuation | JSON: whether an evacuation is on, how many clients are left, and the rate |
| POST /api/v1/evacuation | begins one, and answers the same; it runs until it is ended, or the node stops |
| DELETE /api/v1/evacuation | ends it: the node accepts clients again |
"""

from __future__ import annotations

from aiohttp import web

from flockmq.management.answers import VIEWS, answer

routes = web.RouteTableDef()


@routes.get("/api/v1/evacuation")
async def status(request: web.Request) -> web.Response:
    return answer(200, request.app[VIEWS].evacuation.status())


@routes.post("/api/v1/evacuation")
async def start(request: web.Request) -> web.Response:
    request.app[VIEWS].evacuation.start()
    return answer(200, request.app[VIEWS].evacuation.status())


@routes.delete("/api/v1/evacuation")
async def stop(request: web.Request) -> web.Response:
    request.app[VIEWS].evacuation.stop()
    return web.Response(status=204)
