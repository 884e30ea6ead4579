"""`/livez`, `/readyz` and `/metrics` of the operator itself.

Alive: the process answers, so its loop runs. Ready: it is logged in to an API server that knows MqttClusters; followers
are as ready as the leader, and whether one acts is what the Lease says. Nobody reads a body here, or unpacks one.
Whoever asks isn't known: connections are few, no answer tells what it is made with, and nothing that can't be read is
logged.
"""

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from flockmq_operator.metrics import CONTENT_TYPE, Metrics

SERVER = "flockmq"
"""The header `Server` of all answers: aiohttp would name itself and Python, with versions."""
CONNECTIONS_MAX = 64
"""At a time; of more the oldest are ended, so that a probe finds room."""
_HTTP: dict[str, Any] = {"access_log": None, "auto_decompress": False, "lingering_time": 0}


async def serve_health(port: int, ready: asyncio.Event, metrics: Metrics) -> web.ServerRunner:
    """Listen on all addresses; `cleanup()` the result in the end."""

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return _answer(405, "GET it\n")
        match request.path:
            case "/livez":
                return _answer(200, "ok\n")
            case "/readyz" if not ready.is_set():
                return _answer(503, "not logged in to the API server yet\n")
            case "/readyz":
                return _answer(200, "ok\n")
            case "/metrics":
                return _answer(200, metrics.text(), CONTENT_TYPE)
        return _answer(404, "what is here: /livez, /readyz, /metrics\n")

    runner = web.ServerRunner(_Server(answer))
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Http(self, loop=asyncio.get_running_loop(), **_HTTP)


class _Http(web.RequestHandler):
    """HTTP on one connection."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._manager
        for oldest in self._manager.connections[:-CONNECTIONS_MAX]:
            if isinstance(oldest.transport, asyncio.Transport):
                oldest.transport.abort()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if not isinstance(exc, HttpProcessingError):
            super().handle_error(request, status, exc, message)  # logs the error
        refused = _answer(status, "this can't be read as a request\n" if status < 500 else "it failed here\n")
        refused.force_close()
        return refused


def _answer(status: int, text: str, content_type: str = "text/plain; charset=utf-8") -> web.Response:
    return web.Response(status=status, text=text, headers={"Content-Type": content_type, "Server": SERVER})
