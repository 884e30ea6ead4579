"""REST API: taking cores off the cluster. All requests need an admin's key (see `guard`).

| path | answers |
|---|---|
| POST /api/v1/leave | JSON: what this core hands over; it then leaves for good, and its process ends |
| DELETE /api/v1/cores/NAME | JSON: the cores that are members, when the dead core NAME is none any more |

A refused request is answered with 409, why, and what to do first.
"""

from __future__ import annotations

from aiohttp import web

from flockmq.management.answers import VIEWS, answer

routes = web.RouteTableDef()


@routes.post("/api/v1/leave")
async def leave(request: web.Request) -> web.Response:
    return answer(200, await request.app[VIEWS].cores.leave())


@routes.delete("/api/v1/cores/{name}")
async def forget(request: web.Request) -> web.Response:
    return answer(200, await request.app[VIEWS].cores.forget(request.match_info["name"]))
