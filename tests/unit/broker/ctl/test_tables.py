"""`flockmq ctl tables save` writes what a core's disk has, and says when that isn't whole."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from flockmq.ctl import command
from flockmq.ctl.api import CtlError
from flockmq.ctl.credentials import KEY_VARIABLE
from flockmq.management import tables
from flockmq.management.view import TablesView
from flockmq.rlog.disk import Disk
from flockmq.rlog.entry import StreamId
from flockmq.rlog.schema import SHARDS
from flockmq.rlog.snapshot import name_of, write
from flockmq.rlog.tables import Tables
from unit.broker.management.harness import serving
from unit.broker.rlog.test_snapshot import read

Run = Callable[..., Any]


class OnDisk(TablesView):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def saved(self, shard: str) -> BinaryIO:
        return (self.folder / name_of(shard)).open("rb")


@pytest.fixture
async def core(tmp_path: Path) -> Path:
    """A core's folder: shard number n is at n-7."""
    folder = tmp_path / "core"
    for number, shard in enumerate(SHARDS):
        blank = Tables()
        blank.shards[shard].applied = StreamId(number, 7)
        await write(Disk(folder), blank, shard, read)
    return folder


@pytest.fixture
async def run(core: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    monkeypatch.setenv(KEY_VARIABLE, "key")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    async with serving(tables.routes, OnDisk(core)) as http, http.get("/") as answer:
        url = str(answer.url.origin())
        yield lambda *arguments: asyncio.to_thread(command.run, parser.parse_args(["--url", url, *arguments]))


async def test_each_shard_is_a_file_and_their_positions_are_another(run: Run, core: Path, tmp_path: Path) -> None:
    await run("tables", "save", str(tmp_path / "to"))
    assert (tmp_path / "to/positions").read_text() == "cluster 0-7\nroute 1-7\nretained 2-7\nauth 3-7\n"
    for shard in SHARDS:
        assert (tmp_path / "to" / name_of(shard)).read_bytes() == (core / name_of(shard)).read_bytes()


async def test_a_broken_one_is_refused_and_there_are_no_positions(run: Run, core: Path, tmp_path: Path) -> None:
    broken = core / name_of("retained")
    broken.write_bytes(broken.read_bytes()[:-1])
    with pytest.raises(CtlError, match=r"retained\.snapshot' is broken: .*; try again"):
        await run("tables", "save", str(tmp_path / "to"))
    assert not (tmp_path / "to/positions").exists()


async def test_a_second_run_replaces_the_first(run: Run, core: Path, tmp_path: Path) -> None:
    await run("tables", "save", str(tmp_path / "to/there"))
    broken = core / name_of("auth")
    broken.write_bytes(b"")
    with pytest.raises(CtlError, match=r"auth\.snapshot' is broken"):
        await run("tables", "save", str(tmp_path / "to/there"))
    assert not (tmp_path / "to/there/positions").exists()


async def test_nobody_else_may_read_them_also_where_a_former_run_made_them_for_all(run: Run, tmp_path: Path) -> None:
    former = tmp_path / "there"
    former.mkdir()
    for name in ("positions", *map(name_of, SHARDS)):
        (former / name).touch(0o644)
    for to in (former, tmp_path / "made/new"):
        await run("tables", "save", str(to))
        assert {file.stat().st_mode & 0o777 for file in to.iterdir()} == {0o600}
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "made", tmp_path / "made/new")] == [0o700, 0o700]


async def test_a_folder_that_cant_be_used_is_said(run: Run, core: Path, tmp_path: Path) -> None:
    with pytest.raises(CtlError, match=r"cluster\.snapshot' can't be used: File exists"):
        await run("tables", "save", str(core / name_of("cluster")))
    (tmp_path / "to" / name_of("route")).mkdir(parents=True)
    with pytest.raises(CtlError, match=r"route\.snapshot' can't be written: Is a directory"):
        await run("tables", "save", str(tmp_path / "to"))
