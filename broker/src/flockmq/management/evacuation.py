"""A node is emptied, and goes on: its clients are sent to other nodes. Over HTTP; it needs a key (see `guard`).

| path | answers |
|---|---|
| GET /api/v1/evacuation | JSON: whether this node is emptied, how many clients are left, how fast they go |
| POST /api/v1/evacuation | begin, and answer the same; it goes on until it is ended, or the node ends |
| DELETE /api/v1/evacuation | take clients again |
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from flockmq.management.answers import answer
from flockmq.management.view import EvacuationView

EVACUATION: Final = web.AppKey("evacuation", EvacuationView)

routes = web.RouteTableDef()


@routes.get("/api/v1/evacuation")
async def status(request: web.Request) -> web.Response:
    return answer(200, request.app[EVACUATION].status())


@routes.post("/api/v1/evacuation")
async def start(request: web.Request) -> web.Response:
    request.app[EVACUATION].start()
    return answer(200, request.app[EVACUATION].status())


@routes.delete("/api/v1/evacuation")
async def stop(request: web.Request) -> web.Response:
    request.app[EVACUATION].stop()
    return web.Response(status=204)
