"""What is said of plugins over HTTP, and that one can be enabled again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import aiohttp
import msgspec
import pytest

from flockmq.management import guard, plugins
from flockmq.management.view import PluginRow
from unit.broker.management.harness import serving

FENCED = PluginRow(
    name="greeter",
    version="1.2",
    state="fenced",
    points=["client.connect"],
    calls=12,
    seconds=0.5,
    failures=10,
    last_failure="RuntimeError: broken, at client.connect",
)


class ToldNode:
    def __init__(self) -> None:
        self.row = FENCED

    def rows(self) -> Sequence[PluginRow]:
        return [self.row]

    def enable(self, name: str) -> PluginRow | None:
        if name != self.row.name:
            return None
        self.row = msgspec.structs.replace(self.row, state="running")
        return self.row


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(plugins.routes, plugins.PLUGINS, ToldNode()) as session:
        yield session


async def test_a_fenced_plugin_is_shown_and_enabled_again(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v1/plugins") as answer:
        assert await answer.json() == [msgspec.to_builtins(FENCED)]
    async with http.post("/api/v1/plugins/greeter/enable") as answer:
        assert answer.status == 200
        assert (await answer.json())["state"] == "running"
    async with http.get("/api/v1/plugins") as answer:
        assert (await answer.json())[0]["state"] == "running"


async def test_an_unknown_plugin_is_named(http: aiohttp.ClientSession) -> None:
    async with http.post("/api/v1/plugins/nobody/enable") as answer:
        assert answer.status == 404
        assert "no plugin 'nobody' is enabled on this node" in (await answer.json())["error"]


def test_only_who_has_the_key_enables_a_plugin() -> None:
    assert guard.role_for("GET", "/api/v1/plugins") is None
    assert guard.role_for("POST", "/api/v1/plugins/greeter/enable") == "operator"
