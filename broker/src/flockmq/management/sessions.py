"""REST API: sessions. All requests need an API key (see `guard`).

| path | GET | DELETE | POST |
|---|---|---|---|
| /api/v1/sessions | a page of durable sessions: `?limit=100&after=NEXT&clientid=a*&connected=no` | | |
| /api/v1/sessions/CLIENTID | a session of any kind, with a page of subscriptions: `?limit=100&after=NEXT` | ends it | |
| /api/v1/sessions/end | | | ends that of `{"clientid": …}`, which may be too long for a path |

Ending a session also disconnects its client. Unreadable sessions can be ended too. The answer comes when the end is
committed.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from flockmq.bounds import LOGGED_MAX_CHARACTERS
from flockmq.management.answers import RequestRefused, check_place, check_query, client_id_said, limit_of, shown
from flockmq.management.rows import SessionsWanted
from flockmq.management.view import SessionsView

SESSIONS: Final = web.AppKey("sessions", SessionsView)
_ANSWERS: Final = {None: None, "yes": True, "no": False}
_SUBSCRIPTIONS_MAX_DIGITS: Final = 9

routes = web.RouteTableDef()


@routes.get("/api/v1/sessions")
async def sessions(request: web.Request) -> web.Response:
    check_query(request, "limit", "after", "clientid", "connected")
    query = request.query
    connected = query.get("connected")
    if connected not in _ANSWERS:
        raise RequestRefused(400, f"connected: {connected!r} must be yes or no")
    check_place(query.get("after"))
    wanted = SessionsWanted(
        limit=limit_of(request),
        after=query.get("after"),
        clientid=query.get("clientid"),
        connected=_ANSWERS[connected],
    )
    return shown(await request.app[SESSIONS].sessions(wanted))


@routes.get("/api/v1/sessions/{client_id:.+}")
async def session(request: web.Request) -> web.Response:
    check_query(request, "limit", "after")
    after = request.query.get("after", "0")
    if not after.isascii() or not after.isdigit() or len(after) > _SUBSCRIPTIONS_MAX_DIGITS:
        raise RequestRefused(400, f"after: {after!r} must be what the page before said as next")
    client_id = request.match_info["client_id"]
    found = await request.app[SESSIONS].session(client_id, int(after), limit_of(request))
    if not found:
        raise _missing(client_id)
    return shown(found)


@routes.delete("/api/v1/sessions/{client_id:.+}")
async def end(request: web.Request) -> web.Response:
    return await _end(request, request.match_info["client_id"])


@routes.post("/api/v1/sessions/end")
async def end_said(request: web.Request) -> web.Response:
    return await _end(request, await client_id_said(request))


async def _end(request: web.Request, client_id: str) -> web.Response:
    if not await request.app[SESSIONS].end_session(client_id):
        raise _missing(client_id)
    return web.Response(status=204)


def _missing(client_id: str) -> RequestRefused:
    return RequestRefused(404, f"there is no session of {client_id[:LOGGED_MAX_CHARACTERS]!r}")
