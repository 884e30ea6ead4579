"""What a core has on its disk: never a snapshot of tables that were found wrong."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from random import Random
from typing import BinaryIO

import pytest

from flockmq.redis.errors import StorageUnavailable
from flockmq.redis.link import RedisConfig
from flockmq.rlog.core import Core
from flockmq.rlog.disk import Disk
from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.ports import SingleCore
from flockmq.rlog.replica import Replica
from flockmq.rlog.schema import ROUTE
from flockmq.rlog.snapshot import name_of


class StandingDisk(Disk):
    """What is written stands still until `goes_on`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.stands = threading.Event()
        self.goes_on = threading.Event()

    def sync(self, file: BinaryIO) -> None:
        self.stands.set()
        self.goes_on.wait()
        super().sync(file)


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_no_snapshot_of_wrong_tables_stays_though_they_are_replaced_while_it_is_written(
    tmp_path: Path, is_replaced: bool
) -> None:
    config, disk = RedisConfig("redis://127.0.0.1:1"), StandingDisk(tmp_path)
    replica = Replica(config, None, lambda *_: None, lambda _: START, is_core=True)
    core = Core(config, "core-0", replica, disk, SingleCore(), lambda *_: None, Random(1))
    wrong = replica.tables.shards[ROUTE]
    wrong.applied = StreamId(1, 5)
    written = asyncio.create_task(core.snapshot(ROUTE))
    await asyncio.to_thread(disk.stands.wait)
    core.distrust(ROUTE)
    if is_replaced:
        right = wrong.fresh()
        right.applied = StreamId(1, 7)
        replica.adopt(right)
    disk.goes_on.set()
    with pytest.raises(StorageUnavailable):
        await written
    assert not (tmp_path / name_of(ROUTE)).exists()
    assert core.durable(ROUTE) == START
    await replica.stop()
