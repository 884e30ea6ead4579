"""REST API: this node, and the whole cluster. Changes need an API key (see `guard`).

| path | answers |
|---|---|
| GET /api/v1/nodes | the nodes of the cluster |
| GET /api/v1/status | this node |
| GET /api/v5/rlog | by shard, the position of this node's tables in the log, their lag, and their digests |
| GET /api/v5/cluster | every node, the leader, how many slots each core owns, which core a replicant writes through |
| GET /api/v5/rlog/nodes | by node and shard, the position of its tables in the log, and their lag |
| GET /api/v1/plugins | the enabled plugins of this node with their statistics |
| POST /api/v1/plugins/NAME/enable | enables a fenced plugin again |
| GET /api/v5/alarms | all alarms, the oldest first |
| DELETE /api/v5/alarms/NAME | ends an alarm |

Any node can answer for the whole cluster; it asks the others over links.
"""

from __future__ import annotations

from aiohttp import web

from flockmq.management.answers import ANY_TEXT, VIEWS, answer

routes = web.RouteTableDef()


@routes.get("/api/v1/nodes")
async def nodes(request: web.Request) -> web.Response:
    return answer(200, request.app[VIEWS].node.nodes())


@routes.get("/api/v1/status")
async def status(request: web.Request) -> web.Response:
    return answer(200, request.app[VIEWS].node.status())


@routes.get("/api/v5/rlog")
async def rlog(request: web.Request) -> web.Response:
    return answer(200, request.app[VIEWS].node.rlog())


@routes.get("/api/v5/cluster")
async def cluster(request: web.Request) -> web.Response:
    return answer(200, await request.app[VIEWS].overview.members())


@routes.get("/api/v5/rlog/nodes")
async def logs(request: web.Request) -> web.Response:
    return answer(200, {"data": await request.app[VIEWS].overview.logs()})


@routes.get("/api/v1/plugins")
async def plugins(request: web.Request) -> web.Response:
    return answer(200, request.app[VIEWS].plugins.rows())


@routes.post("/api/v1/plugins/{name}/enable")
async def enable_plugin(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    rows = request.app[VIEWS].plugins.enable(name)
    if rows is None:
        return answer(404, {"error": f"no plugin {name!r} is enabled on this node; see plugins.enabled"})
    return answer(200, rows)


@routes.get("/api/v5/alarms")
async def alarms(request: web.Request) -> web.Response:
    return answer(200, request.app[VIEWS].alarms.rows())


@routes.delete(f"/api/v5/alarms/{{name:{ANY_TEXT}}}")
async def end_alarm(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if not await request.app[VIEWS].alarms.end(name):
        return answer(404, {"error": f"there is no alarm {name!r}; GET /api/v5/alarms lists them"})
    return web.Response(status=204)
