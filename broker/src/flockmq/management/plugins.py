"""The plugins of this node over HTTP.

| path | answers |
|---|---|
| GET /api/v1/plugins | JSON: the enabled plugins, and how they behave |
| POST /api/v1/plugins/NAME/enable | takes the fence away from one that failed; needs the API key (see `guard`) |
"""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from flockmq.management.view import PluginsView

PLUGINS: Final = web.AppKey("plugins", PluginsView)

routes = web.RouteTableDef()


@routes.get("/api/v1/plugins")
async def plugins(request: web.Request) -> web.Response:
    return _json(200, request.app[PLUGINS].plugins())


@routes.post("/api/v1/plugins/{name}/enable")
async def enable(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    rows = request.app[PLUGINS].enable_plugin(name)
    if rows is None:
        return _json(404, {"error": f"no plugin {name!r} is enabled on this node; see plugins.enabled"})
    return _json(200, rows)


def _json(status: int, value: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value) + b"\n", content_type="application/json")
