"""REST API: the whole cluster. Any node can answer; it asks the others over links.

| path | answers | |---|---| | GET /api/v5/cluster | JSON: every node, the leader, how many slots each core owns, which
core a replicant writes through | | GET /api/v5/rlog/nodes | JSON: by node and shard, the position of its tables in the
log, and their lag |
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from flockmq.management.answers import answer
from flockmq.management.view import OverviewView

OVERVIEW: Final = web.AppKey("overview", OverviewView)

routes = web.RouteTableDef()


@routes.get("/api/v5/cluster")
async def cluster(request: web.Request) -> web.Response:
    return answer(200, await request.app[OVERVIEW].members())


@routes.get("/api/v5/rlog/nodes")
async def logs(request: web.Request) -> web.Response:
    return answer(200, {"data": await request.app[OVERVIEW].logs()})
