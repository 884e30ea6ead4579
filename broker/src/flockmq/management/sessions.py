"""Sessions over HTTP.

| path | answers |
|---|---|
| DELETE /api/v1/sessions/CLIENTID | ends that client's session, one that can't be read too, and its connection |

It needs the API key (see `access`), and is answered when it is durable: 204, or 404 where there was neither.
"""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from flockmq.management.view import CannotEnd, SessionsView

SESSIONS: Final = web.AppKey("sessions", SessionsView)

routes = web.RouteTableDef()


@routes.delete("/api/v1/sessions/{client_id:.+}")
async def end(request: web.Request) -> web.Response:
    client_id = request.match_info["client_id"]
    try:
        was_there = await request.app[SESSIONS].end_session(client_id)
    except CannotEnd as why:
        return _error(503, f"{why}; try again later")
    if not was_there:
        return _error(404, f"there is no session of {client_id!r}")
    return web.Response(status=204)


def _error(status: int, why: str) -> web.Response:
    body = msgspec.json.encode({"error": why}) + b"\n"
    return web.Response(status=status, body=body, content_type="application/json")
