"""A core's promises: what it reported is on disk, whatever became of those who asked."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from flockmq.redis.link import RedisConfig
from flockmq.rlog.disk import Disk
from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.generation import UNREADABLE
from flockmq.rlog.replica import Replica
from flockmq.rlog.schema import CLUSTER, ROUTE
from flockmq.rlog.voter import Voter


class StandingDisk(Disk):
    """Its first write stands still until `goes_on`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.stands = threading.Event()
        self.goes_on = threading.Event()

    def create(self, name: str) -> BinaryIO:
        if not self.stands.is_set():
            self.stands.set()
            self.goes_on.wait()
        return super().create(name)


async def loaded(disk: Disk) -> Voter:
    config = RedisConfig("redis://127.0.0.1:1")
    voter = Voter("core-0", Replica(config, None, lambda *_: None, lambda _: START, is_core=True), disk)
    await voter.load()
    return voter


async def test_a_core_that_cant_read_its_snapshot_says_so_until_it_has_tables(tmp_path: Path) -> None:
    replica = Replica(RedisConfig("redis://127.0.0.1:1"), None, lambda *_: None, lambda _: START, is_core=True)
    voter = Voter("core-0", replica, Disk(tmp_path))
    await voter.load()
    voter.unreadable.add(CLUSTER)
    assert [(await voter.report(shard, 0)).position for shard in (CLUSTER, ROUTE)] == [UNREADABLE, START]
    replica.tables.shards[CLUSTER].applied = StreamId(1, 0)
    assert (await voter.report(CLUSTER, 0)).position == StreamId(1, 0)


async def test_a_promise_that_was_reported_outlives_the_write_of_an_older_one(tmp_path: Path) -> None:
    loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(2)
    loop.set_default_executor(threads)
    disk = StandingDisk(tmp_path)
    voter = await loaded(disk)
    given_up = asyncio.create_task(voter.report(CLUSTER, 5))
    await asyncio.to_thread(disk.stands.wait)
    given_up.cancel()  # as where the asker's link is lost
    await asyncio.wait([given_up])
    reporting = asyncio.create_task(voter.report(CLUSTER, 7))
    await asyncio.sleep(0)
    await asyncio.to_thread(int)  # behind the second write, if that doesn't wait for the first
    disk.goes_on.set()
    assert (await reporting).granted
    threads.shutdown()  # both writes are over
    loop.set_default_executor(ThreadPoolExecutor(1))
    assert (await loaded(Disk(tmp_path))).promised(CLUSTER) == 7
