"""The connections of the cluster over HTTP; all of it needs the API key (see `guard`).

| path | GET | DELETE |
|---|---|---|
| /api/v1/clients | a page: `?limit=100&after=NEXT`, and what they are to be like | |
| /api/v1/clients/CLIENTID | it | ends its connection (0x98); its session goes on, if it lasts |

`clientid`, `username` and `listener` may hold `*` and `?`; `node` is a name; `peerhost` an address or a network.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from flockmq.management.answers import Refused, check_place, check_query, limit_of, shown
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
        raise Refused(400, f"peerhost: {error}") from None
    return shown(listing)


@routes.get("/api/v1/clients/{client_id:.+}")
async def client(request: web.Request) -> web.Response:
    row = await request.app[CLIENTS].client(request.match_info["client_id"])
    if not row:
        raise _missing(request)
    return shown(row)


@routes.delete("/api/v1/clients/{client_id:.+}")
async def kick(request: web.Request) -> web.Response:
    if not await request.app[CLIENTS].kick(request.match_info["client_id"]):
        raise _missing(request)
    return web.Response(status=204)


def _missing(request: web.Request) -> Refused:
    return Refused(404, f"{request.match_info['client_id']!r} isn't connected")
