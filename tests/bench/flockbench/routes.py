"""A batch writer of routes on a core: python routes.py REDIS_URL FOLDER OPERATIONS, printing a line of JSON.

An operation counts when it is committed in Redis and applied to the core's own tables. The filters are made beforehand,
as the commands are by which Redis is measured by itself.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio import Future
from collections import deque
from pathlib import Path
from typing import Final

import uvloop

from flockmq.redis.link import RedisConfig
from flockmq.rlog.disk import Disk
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import ROUTE, ROUTES

BATCH: Final = 4000
WINDOW: Final = 32
"""Batches that are under way at most."""


async def main(url: str, folder: Path, count: int) -> dict[str, float]:
    core = Rlog("core@bench", RedisConfig(url), disk=Disk(folder))
    await core.start()
    filters = [b"fleet/%07d/+/state" % number for number in range(count)]
    try:
        start, cpu_start = time.perf_counter(), time.process_time()
        await _write(core, filters)
        elapsed, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    finally:
        await core.stop()
    return {"route_rate": count / elapsed, "route_cpu_us": cpu_s / count * 1e6}


async def _write(core: Rlog, filters: list[bytes]) -> None:
    under_way: deque[Future[StreamId]] = deque()
    for first in range(0, len(filters), BATCH):
        under_way.append(core.submit(ROUTE, _batch(core.incarnation, filters[first : first + BATCH])))
        await asyncio.sleep(0)  # the turn ends: a transaction
        while len(under_way) >= WINDOW:
            await under_way.popleft()
    while under_way:
        await under_way.popleft()


def _batch(owner: str, filters: list[bytes]) -> list[Op]:
    return [ROUTES.put((topic_filter, owner), None) for topic_filter in filters]


if __name__ == "__main__":
    print(json.dumps(uvloop.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))))
