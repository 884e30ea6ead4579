"""`/livez`, `/readyz` and `/metrics` of the operator itself.

Alive: the process answers, so its loop runs. Ready: it is logged in to an API server that knows MqttClusters; followers
are as ready as the leader, and whether one acts is what the Lease says. Nobody reads a body here, or unpacks one.
"""

import asyncio

from aiohttp import web

from flockmq_operator.metrics import CONTENT_TYPE, Metrics

READY = web.AppKey("ready", asyncio.Event)
METRICS = web.AppKey("metrics", Metrics)


async def serve_health(port: int, ready: asyncio.Event, metrics: Metrics) -> web.AppRunner:
    """Listen on all addresses; `cleanup()` the result in the end."""
    app = web.Application()
    app[READY] = ready
    app[METRICS] = metrics
    app.router.add_get("/livez", _livez)
    app.router.add_get("/readyz", _readyz)
    app.router.add_get("/metrics", _metrics)
    runner = web.AppRunner(app, access_log=None, auto_decompress=False, lingering_time=0)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner


async def _livez(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    if request.app[READY].is_set():
        return web.Response(text="ok\n")
    return web.Response(status=503, text="not logged in to the API server yet\n")


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(text=request.app[METRICS].text(), headers={"Content-Type": CONTENT_TYPE})
