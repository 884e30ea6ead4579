"""`/livez` and `/readyz` of the operator itself: the process answers, so its loop runs. Followers are as alive as the
leader; whether one acts is what the Lease says."""

from aiohttp import web


async def serve_health(port: int) -> web.AppRunner:
    """Listen on all addresses; `cleanup()` the result in the end."""
    app = web.Application()
    app.router.add_get("/livez", _alive)
    app.router.add_get("/readyz", _alive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")
