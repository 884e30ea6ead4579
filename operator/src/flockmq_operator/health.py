"""`/livez` and `/readyz` of the operator itself.

Alive: the process answers, so its loop runs. Ready: it is logged in to an API server that knows MqttClusters; followers
are as ready as the leader, and whether one acts is what the Lease says. Nobody reads a body here, or unpacks one.
"""

import asyncio

from aiohttp import web

READY = web.AppKey("ready", asyncio.Event)


async def serve_health(port: int, ready: asyncio.Event) -> web.AppRunner:
    """Listen on all addresses; `cleanup()` the result in the end."""
    app = web.Application()
    app[READY] = ready
    app.router.add_get("/livez", _livez)
    app.router.add_get("/readyz", _readyz)
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
