"""Sessions over HTTP.

| path | answers |
|---|---|
| DELETE /api/v1/sessions/CLIENTID | ends that client's session, one that can't be read too, and its connection |

It needs the API key (see `access`), and is answered when it is durable, whether or not there was a session.
"""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from flockmq.management.view import SessionsView

SESSIONS: Final = web.AppKey("sessions", SessionsView)

routes = web.RouteTableDef()


@routes.delete("/api/v1/sessions/{client_id:.+}")
async def end(request: web.Request) -> web.Response:
    if why := await request.app[SESSIONS].end_session(request.match_info["client_id"]):
        body = msgspec.json.encode({"error": f"{why}; try again later"}) + b"\n"
        return web.Response(status=503, body=body, content_type="application/json")
    return web.Response(status=204)
