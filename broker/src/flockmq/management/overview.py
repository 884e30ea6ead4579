"""The whole cluster over HTTP, whichever node is asked: it asks the others over their links.

| path | answers |
|---|---|
| GET /api/v5/cluster | JSON: every node, and who leads, who owns how many slots, who writes through whom |
| GET /api/v5/rlog/nodes | JSON: by node and shard, where its tables are in the log and how they keep up |
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
