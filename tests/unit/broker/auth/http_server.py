"""A server that answers what a test says, and a node's question to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """One path, whose handler a test may change."""

    def __init__(self) -> None:
        self.handler: Handler
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        return await self.handler(request)
