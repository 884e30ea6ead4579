"""Real nodes with a configuration of the test's own, and services of the test's that they ask."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from integration.broker.conftest import Fleet, Node
from integration.dev.commands import PATIENCE_S, Commands

API_KEY = "an integration test's API key, 32 letters"
Handler = Callable[[web.Request], Awaitable[web.Response]]


def api(node: Node, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Ask the node's REST API, with the key."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.management}/api/v1{path}",
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {API_KEY}"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


class Configured(Fleet):
    """A fleet whose nodes have a TOML file."""

    def __init__(self, flockmq: Commands, directory: Path) -> None:
        super().__init__(flockmq, directory)
        self.directory = directory
        self.key_file = directory / "api-key"
        self.key_file.write_text(API_KEY)
        self.file = directory / "node.toml"
        self.configure("")

    def configure(self, text: str) -> None:
        self.file.write_text(f'[management]\napi_key_file = "{self.key_file}"\n{text}')

    def single(self, text: str) -> Node:
        """A core that clients connect to."""
        self.configure(text)
        return self._node("single-0", "single", "--data-dir", str(self.directory / "single-0"))

    def _arguments(self, name: str, role: str, link: str) -> tuple[str, ...]:
        return "--config", str(self.file), *super()._arguments(name, role, link)


@pytest.fixture
def fleet(flockmq: Commands, tmp_path: Path) -> Iterator[Configured]:
    made = Configured(flockmq, tmp_path)
    yield made
    made.stop_redis()


@contextlib.asynccontextmanager
async def service(path: str, handler: Handler) -> AsyncIterator[str]:
    """An HTTP service of the test's; its URL."""
    app = web.Application()
    app.router.add_route("*", path, handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
    finally:
        await runner.cleanup()
