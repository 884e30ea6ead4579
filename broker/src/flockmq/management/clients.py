"""REST API: the cluster's clients and sessions. All requests need an API key (see `guard`).

| path | GET | DELETE | POST |
|---|---|---|---|
| /api/v1/clients | a page: `?limit=100&after=NEXT`, and filters | | |
| /api/v1/clients/CLIENTID | the client | disconnects it (0x98); a durable session stays | |
| /api/v1/clients/kick | | | the same for `{"clientid": …}`, which may be too long for a path |
| /api/v1/sessions | a page of durable sessions: `?limit=100&after=NEXT&clientid=a*&connected=no` | | |
| /api/v1/sessions/CLIENTID | a session of any kind, with a page of subscriptions: `?limit=100&after=NEXT` | ends it | |
| /api/v1/sessions/end | | | ends that of `{"clientid": …}`, which may be too long for a path |

The filters `clientid`, `username` and `listener` may contain `*` and `?`; `node` is a name; `peerhost` is an address or
a network. Ending a session also disconnects its client. Unreadable sessions can be ended too. The answer comes when the
end is committed.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from flockmq.auth.name_patterns import check_length
from flockmq.bounds import LOGGED_MAX_CHARACTERS
from flockmq.management.answers import (
    ANY_TEXT,
    VIEWS,
    RequestRefused,
    check_place,
    check_query,
    client_id_in_body,
    limit_of,
    shown,
)
from flockmq.management.client_rows import ClientsWanted, SessionsWanted

FILTERS: Final = ("clientid", "username", "node", "listener", "peerhost")
PATTERNS: Final = ("clientid", "username", "listener")
_ANSWERS: Final = {None: None, "yes": True, "no": False}
_SUBSCRIPTIONS_MAX_DIGITS: Final = 9

routes = web.RouteTableDef()


@routes.get("/api/v1/clients")
async def clients(request: web.Request) -> web.Response:
    check_query(request, "limit", "after", *FILTERS)
    asked = {name: request.query.get(name) for name in ("after", *FILTERS)}
    check_place(asked["after"])
    for name in PATTERNS:
        _check_pattern(name, asked[name])
    try:
        listing = await request.app[VIEWS].clients.clients(ClientsWanted(limit=limit_of(request), **asked))
    except ValueError as error:
        raise RequestRefused(400, f"peerhost: {error}") from None
    return shown(listing)


@routes.get(f"/api/v1/clients/{{client_id:{ANY_TEXT}}}")
async def client(request: web.Request) -> web.Response:
    client_id = request.match_info["client_id"]
    row = await request.app[VIEWS].clients.client(client_id)
    _check_found(row, client_id, "{} isn't connected")
    return shown(row)


@routes.delete(f"/api/v1/clients/{{client_id:{ANY_TEXT}}}")
@routes.post("/api/v1/clients/kick")
async def kick(request: web.Request) -> web.Response:
    client_id = await _client_id(request)
    _check_found(await request.app[VIEWS].clients.kick(client_id), client_id, "{} isn't connected")
    return web.Response(status=204)


@routes.get("/api/v1/sessions")
async def sessions(request: web.Request) -> web.Response:
    check_query(request, "limit", "after", "clientid", "connected")
    query = request.query
    connected = query.get("connected")
    if connected not in _ANSWERS:
        raise RequestRefused(400, f"connected: {connected!r} must be yes or no")
    check_place(query.get("after"))
    _check_pattern("clientid", query.get("clientid"))
    wanted = SessionsWanted(
        limit=limit_of(request), after=query.get("after"), clientid=query.get("clientid"), connected=_ANSWERS[connected]
    )
    return shown(await request.app[VIEWS].sessions.sessions(wanted))


@routes.get(f"/api/v1/sessions/{{client_id:{ANY_TEXT}}}")
async def session(request: web.Request) -> web.Response:
    check_query(request, "limit", "after")
    after = request.query.get("after", "0")
    if not after.isascii() or not after.isdigit() or len(after) > _SUBSCRIPTIONS_MAX_DIGITS:
        raise RequestRefused(400, f"after: {after!r} must be what the page before said as next")
    client_id = request.match_info["client_id"]
    found = await request.app[VIEWS].sessions.session(client_id, int(after), limit_of(request))
    _check_found(found, client_id, "there is no session of {}")
    return shown(found)


@routes.delete(f"/api/v1/sessions/{{client_id:{ANY_TEXT}}}")
@routes.post("/api/v1/sessions/end")
async def end_session(request: web.Request) -> web.Response:
    client_id = await _client_id(request)
    has_ended = await request.app[VIEWS].sessions.end_session(client_id)
    _check_found(has_ended, client_id, "there is no session of {}")
    return web.Response(status=204)


def _check_pattern(name: str, pattern: str | None) -> None:
    """Raises RequestRefused."""
    try:
        check_length(pattern or "")
    except ValueError as error:
        raise RequestRefused(400, f"{name}: {error}") from None


async def _client_id(request: web.Request) -> str:
    """In the path, or in the body. Raises RequestRefused."""
    return request.match_info.get("client_id") or await client_id_in_body(request)


def _check_found(found: object, client_id: str, what: str) -> None:
    """Raises RequestRefused."""
    if not found:
        raise RequestRefused(404, what.format(repr(client_id[:LOGGED_MAX_CHARACTERS])))
