"""REST API: rebalancing, which sends clients from nodes that have more than their share to other nodes.

| path | answers |
|---|---|
| GET /api/v1/rebalance | JSON: by node, how many clients it sends to others, or would, and how long that takes |
| PUT /api/v1/rebalance | starts one in the whole cluster, also where it is off by configuration; answers the same |
| DELETE /api/v1/rebalance | ends it |

The body of PUT may have `relative_threshold`, `absolute_threshold`, `rate`, `connections_weight`, `sessions_weight` and
`messages_weight` (default: as each node is configured), `wait` and `settle`, `node` for one node alone, and `name`: who
asks. The plan of GET may have the first six as parameters, and DELETE `node` and `name`. Reading needs no API key,
changes need an operator's (see `guard`). Any node passes it to all.
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from flockmq.management.answers import VIEWS, RequestRefused, about, answer, body_of, check_query
from flockmq.management.rebalance_rows import THRESHOLDS, AskedRebalance

routes = web.RouteTableDef()


class _Wanted(AskedRebalance, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node: str | None = None


@routes.get("/api/v1/rebalance")
async def show(request: web.Request) -> web.Response:
    check_query(request, *THRESHOLDS)
    try:
        thresholds = msgspec.convert(dict(request.query), AskedRebalance, strict=False)
    except msgspec.ValidationError as error:
        raise RequestRefused(400, f"the parameters can't be used: {error}") from None
    return answer(200, await request.app[VIEWS].rebalance.shown(thresholds))


@routes.put("/api/v1/rebalance")
async def start(request: web.Request) -> web.Response:
    wanted = await body_of(request, _Wanted) if request.body_exists else _Wanted()
    about(request, _said(wanted.name, wanted.node))
    asked = AskedRebalance(**{name: getattr(wanted, name) for name in AskedRebalance.__struct_fields__})
    return answer(200, await request.app[VIEWS].rebalance.start(asked, wanted.node))


@routes.delete("/api/v1/rebalance")
async def stop(request: web.Request) -> web.Response:
    check_query(request, "name", "node")
    name, node = request.query.get("name"), request.query.get("node")
    about(request, _said(name or "", node))
    await request.app[VIEWS].rebalance.stop(name, node)
    return web.Response(status=204)


def _said(name: str, node: str | None) -> str:
    return ", ".join(part for part in (name, node or "all nodes") if part)
