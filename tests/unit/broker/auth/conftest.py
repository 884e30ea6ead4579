"""A server that answers what a test says, a log without Redis, and threads that hash."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from flockmq.auth.hash_pool import HashPool
from unit.broker.auth.harness import FakeLog
from unit.broker.auth.http_server import Server


@pytest.fixture
async def pool() -> AsyncIterator[HashPool]:
    made = HashPool()
    yield made
    made.close()


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


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
