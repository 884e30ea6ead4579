"""A server that answers what a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from unit.broker.auth.http_server import Server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()
