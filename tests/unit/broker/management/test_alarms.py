"""Alarms are shown, and ended by whoever has the key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import aiohttp
import msgspec
import pytest

from flockmq.management import alarms, guard
from flockmq.management.view import AlarmRow
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
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(alarms.routes, alarms.ALARMS, AlarmedNode()) as session:
        yield session


async def test_an_alarm_is_shown_until_it_is_ended(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v5/alarms") as answer:
        assert await answer.json() == [msgspec.to_builtins(LOST)]
    async with http.delete("/api/v5/alarms/redis-lost-data/route") as answer:
        assert answer.status == 204
    async with http.get("/api/v5/alarms") as answer:
        assert await answer.json() == []


async def test_an_unknown_alarm_is_named(http: aiohttp.ClientSession) -> None:
    async with http.delete("/api/v5/alarms/nothing") as answer:
        assert answer.status == 404
        assert "there is no alarm 'nothing'" in (await answer.json())["error"]


def test_only_who_has_the_key_ends_an_alarm() -> None:
    assert guard.role_for("GET", "/api/v5/alarms") is None
    assert guard.role_for("DELETE", "/api/v5/alarms/redis-lost-data/route") == "operator"
