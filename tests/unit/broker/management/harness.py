"""Routes over real HTTP, with a node that is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
from aiohttp import web

from flockmq.management import guard

Node = TypeVar("Node")


@asynccontextmanager
async def serving(routes: web.RouteTableDef, key: web.AppKey[Node], node: Node) -> AsyncIterator[aiohttp.ClientSession]:
    """`key`: by which the routes find their node. Gives a client of theirs."""
    app = web.Application(middlewares=[guard.in_words])
    app[key] = node
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as http:
        yield http
    await runner.cleanup()
