"""REST API: the connected clients of the cluster. All requests need an API key (see `guard`).

| path | GET | DELETE | POST |
|---|---|---|---|
| /api/v1/clients | a page: `?limit=100&after=NEXT`, and filters | | |
| /api/v1/clients/CLIENTID | the client | disconnects it (0x98); a durable session stays | |
| /api/v1/clients/kick | | | the same for `{"clientid": …}`, which may be too long for a path |

The filters `clientid`, `username` and `listener` may contain `*` and `?`; `node` is a name; `peerhost` is an address or
a network.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from flockmq.bounds import LOGGED_MAX_CHARACTERS
from flockmq.management.answers import RequestRefused, check_place, check_query, client_id_said, limit_of, shown
from flockmq.management.rows import ClientsWanted
from flockmq.management.view import ClientsView

CLIENTS: Final = web.AppKey("clients", ClientsView)
FILTERS: Final = ("clientid", "username", "node", "listener", "peerhost")

routes = web.RouteTableDef()


@routes.get("/api/v1/clients")
async def clients(request: web.Request) -> web.Response:
    check_query(request, "limit", "after", *FILTERS)
    asked = {name: request.query.get(name) for name in ("after", *FILTERS)}
    check_place(asked["after"])
    try:
        listing = await request.app[CLIENTS].clients(ClientsWanted(limit=limit_of(request), **asked))
    except ValueError as error:
        raise RequestRefused(400, f"peerhost: {error}") from None
    return shown(listing)


@routes.get("/api/v1/clients/{client_id:.+}")
async def client(request: web.Request) -> web.Response:
    client_id = request.match_info["client_id"]
    row = await request.app[CLIENTS].client(client_id)
    if not row:
        raise _missing(client_id)
    return shown(row)


@routes.delete("/api/v1/clients/{client_id:.+}")
async def kick(request: web.Request) -> web.Response:
    return await _kick(request, request.match_info["client_id"])


@routes.post("/api/v1/clients/kick")
async def kick_said(request: web.Request) -> web.Response:
    return await _kick(request, await client_id_said(request))


async def _kick(request: web.Request, client_id: str) -> web.Response:
    if not await request.app[CLIENTS].kick(client_id):
        raise _missing(client_id)
    return web.Response(status=204)


def _missing(client_id: str) -> RequestRefused:
    return RequestRefused(404, f"{client_id[:LOGGED_MAX_CHARACTERS]!r} isn't connected")
