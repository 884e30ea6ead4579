"""REST API: the plugins of this node.

| path | answers |
|---|---|
| GET /api/v1/plugins | JSON: the enabled plugins with their statistics |
| POST /api/v1/plugins/NAME/enable | enables a fenced plugin again; needs an API key (see `guard`) |
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from flockmq.management.answers import answer
from flockmq.management.view import PluginsView

PLUGINS: Final = web.AppKey("plugins", PluginsView)

routes = web.RouteTableDef()


@routes.get("/api/v1/plugins")
async def plugins(request: web.Request) -> web.Response:
    return answer(200, request.app[PLUGINS].rows())


@routes.post("/api/v1/plugins/{name}/enable")
async def enable(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    rows = request.app[PLUGINS].enable(name)
    if rows is None:
        return answer(404, {"error": f"no plugin {name!r} is enabled on this node; see plugins.enabled"})
    return answer(200, rows)
