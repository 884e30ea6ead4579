"""The management HTTP server: health checks, metrics, cluster status, and, with an API key, administration.

| path | answers |
|---|---|
| /livez | 200 while the event loop runs |
| /readyz | 200 if bootstrapped, listening and able to serve, also while draining; else 503 with the reason |
| /availz | for load balancers: as /readyz, but 503 while draining |
| /metrics | Prometheus' text format |
| /api/v1/nodes | JSON: the nodes of the cluster |
| /api/v1/status | JSON: this node |
| /api/v5/rlog | JSON: by shard, the position of this node's tables in the log, their lag, and their digests |
| /api/v1/plugins… | see `status` |
| /api/v1/quotas… | see `quotas` |
| /api/v5/cluster, /api/v5/rlog/nodes, /api/v5/alarms… | see `status` |
| /api/v1/clients…, /api/v1/sessions… | see `clients` |
| /api/v1/evacuation | see `evacuation` |
| /api/v1/rebalance | see `rebalance` |
| /api/v1/leave, /api/v1/cores/NAME | see `cores` |
| /api/v1/keys…, /api/v1/audit | see `keys` |
| /api/v1/settings… | see `settings` |
| /api/v1/tables/SHARD | see `tables` |
| /api/v1/users…, /api/v1/rules…, /api/v1/bans… | see `users_and_rules` |
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from flockmq import listening_sockets
from flockmq.auth.admin import Admin
from flockmq.bounds import (
    MANAGEMENT_HEADER_MAX_BYTES,
    MANAGEMENT_HEADERS_MAX,
    MANAGEMENT_KEEP_ALIVE_MAX_SECONDS,
    MANAGEMENT_REQUEST_LINE_MAX_BYTES,
    MANAGEMENT_REQUEST_MAX_BYTES,
    MANAGEMENT_UNWANTED_MAX_S,
    REFUSALS_LOGGED_PER_S,
)
from flockmq.clock import SYSTEM
from flockmq.config.values import Address
from flockmq.logs import Sparing
from flockmq.management import clients, cores, evacuation, quotas, rebalance, settings, tables, users_and_rules
from flockmq.management import keys as key_paths
from flockmq.management import status as status_paths
from flockmq.management.answers import VIEWS, answer
from flockmq.management.api_keys import ApiKeys
from flockmq.management.audit_log import AuditLog
from flockmq.management.connections import ManagementConnections
from flockmq.management.guard import Guard
from flockmq.management.pace import Pace
from flockmq.management.quota_admin import QuotaAdmin
from flockmq.management.scrapes import Scrapes, samples_of
from flockmq.management.view import Views
from flockmq.telemetry import metrics

log: Final = logging.getLogger(__name__)

SERVER: Final = "flockmq"
"""The header `Server` of all answers: aiohttp would name itself and Python, with versions."""
SCRAPES: Final = web.AppKey("scrapes", Scrapes)

routes = web.RouteTableDef()


@routes.get("/livez")
async def livez(request: web.Request) -> web.Response:
    return web.Response(text="alive\n")


@routes.get("/readyz")
async def readyz(request: web.Request) -> web.Response:
    return _readiness(request)


@routes.get("/availz")
async def availz(request: web.Request) -> web.Response:
    if request.app[VIEWS].node.draining():
        return web.Response(status=503, text="draining\n")
    return _readiness(request)


@routes.get("/metrics")
async def metrics_text(request: web.Request) -> web.Response:
    return web.Response(body=await request.app[SCRAPES].text(), headers={"Content-Type": metrics.CONTENT_TYPE})


def _readiness(request: web.Request) -> web.Response:
    ready, reason = request.app[VIEWS].node.ready()
    return web.Response(status=200 if ready else 503, text=f"{reason}\n")


async def _name_server(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = SERVER


_UNREADABLE: Final = (HttpProcessingError, web.RequestPayloadError)
"""Errors that are caused by the client's bytes, not by our code."""


class _Unparsed(logging.Filter):
    """Replaces aiohttp's log records about unparsable requests and bodies by one line with the sender. The bytes aren't
    logged, because they may contain an API key."""

    def __init__(self) -> None:
        super().__init__()
        self._sparing = Sparing(log, REFUSALS_LOGGED_PER_S, SYSTEM.monotonic)

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, _UNREADABLE):
            return True
        self._sparing.warning(f"{record.msg}: %s", *(record.args or ()), type(error).__name__)
        return False


http_log: Final = logging.getLogger(f"{__name__}.http")
http_log.addFilter(_Unparsed())


class _Http(web.RequestHandler):
    """HTTP on one connection. Errors before routing are answered in the same JSON form as all others."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)  # logs the error
        reason = (message or "").partition("\n")[0].rstrip(":").encode(errors="replace").decode()
        why = f"this can't be read as a request: {reason}" if status == 400 else "it failed here; see the node's log"
        refused = answer(status, {"error": why})
        refused.headers["Server"] = SERVER  # no application prepares this answer
        refused.force_close()
        return refused


_HTTP: Final[dict[str, Any]] = {
    "access_log": None,
    "logger": http_log,
    "keepalive_timeout": MANAGEMENT_KEEP_ALIVE_MAX_SECONDS,
    "max_line_size": MANAGEMENT_REQUEST_LINE_MAX_BYTES,
    "max_field_size": MANAGEMENT_HEADER_MAX_BYTES,
    "max_headers": MANAGEMENT_HEADERS_MAX,
    "lingering_time": MANAGEMENT_UNWANTED_MAX_S,
    "auto_decompress": False,
}


@contextlib.asynccontextmanager
async def serve(
    views: Views,
    listen: Address,
    admin: Admin,
    quota_admin: QuotaAdmin,
    keys: ApiKeys,
    audit: AuditLog,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve inside the block; yields the port. Raises AddressInUse if `listen` can't be bound."""
    listening = listening_sockets.bound(listen.host, listen.port, "management.listen")
    with contextlib.closing(listening), contextlib.closing(ManagementConnections(listening, tls)) as connections:
        app = _application(views, admin, quota_admin, keys, audit, connections)
        runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.5)
        await runner.setup()
        assert runner.server is not None
        make_handler = partial(_Http, runner.server, loop=asyncio.get_running_loop(), **_HTTP)
        try:
            with connections.accepting(make_handler):
                yield int(listening.getsockname()[1])
        finally:
            await runner.cleanup()


def _application(
    views: Views,
    admin: Admin,
    quota_admin: QuotaAdmin,
    keys: ApiKeys,
    audit: AuditLog,
    connections: ManagementConnections,
) -> web.Application:
    middlewares = [connections.noting, Pace().paced, *Guard(keys, audit).middlewares()]
    app = web.Application(client_max_size=MANAGEMENT_REQUEST_MAX_BYTES, middlewares=middlewares)
    app.on_response_prepare.append(_name_server)
    app[VIEWS] = views
    app[users_and_rules.ADMIN] = admin
    app[quotas.ADMIN] = quota_admin
    app[key_paths.KEYS] = keys
    app[key_paths.AUDIT] = audit
    registry = metrics.registry(partial(samples_of, views.node, views.samples))
    app[SCRAPES] = Scrapes(partial(metrics.exposition, registry))
    for part in (
        routes,
        status_paths.routes,
        evacuation.routes,
        rebalance.routes,
        cores.routes,
        clients.routes,
        users_and_rules.routes,
        quotas.routes,
        key_paths.routes,
        settings.routes,
        tables.routes,
    ):
        app.add_routes(part)
    return app
