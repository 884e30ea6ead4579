"""What is said of a node and its cluster over HTTP; what may be ended, or enabled again, by whoever has the key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import aiohttp
import msgspec
import pytest

from flockmq.management import guard, status
from flockmq.management.view import AlarmRow, PluginRow
from unit.broker.management.harness import serving

LOST = AlarmRow(name="redis-lost-data/route", since_s=1.5, text="Redis at r:6379 lost entries of shard route")


class AlarmedNode:
    def __init__(self) -> None:
        self.alarms = [LOST]

    def rows(self) -> Sequence[AlarmRow]:
        return self.alarms

    async def end(self, name: str) -> bool:
        before = len(self.alarms)
        self.alarms = [row for row in self.alarms if row.name != name]
        return len(self.alarms) < before


@pytest.fixture
async def alarmed() -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(status.routes, AlarmedNode()) as session:
        yield session


async def test_an_alarm_is_shown_until_it_is_ended(alarmed: aiohttp.ClientSession) -> None:
    async with alarmed.get("/api/v5/alarms") as answer:
        assert await answer.json() == [msgspec.to_builtins(LOST)]
    async with alarmed.delete("/api/v5/alarms/redis-lost-data/route") as answer:
        assert answer.status == 204
    async with alarmed.get("/api/v5/alarms") as answer:
        assert await answer.json() == []


async def test_an_unknown_alarm_is_named(alarmed: aiohttp.ClientSession) -> None:
    async with alarmed.delete("/api/v5/alarms/nothing") as answer:
        assert answer.status == 404
        assert "there is no alarm 'nothing'" in (await answer.json())["error"]


def test_only_who_has_the_key_ends_an_alarm() -> None:
    assert guard.role_for("GET", "/api/v5/alarms") is None
    assert guard.role_for("DELETE", "/api/v5/alarms/redis-lost-data/route") == "operator"


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
    async with serving(status.routes, ToldNode()) as session:
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
