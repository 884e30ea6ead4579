"""Redis loses its data under three cores: whoever knows most gives it back, and nobody else. A core whose tables are
wrong is told so by the others."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from flockmq.membership.mesh import Address
from flockmq.redis.link import RedisConfig
from flockmq.rlog.entry import PUT
from flockmq.rlog.schema import ROUTE, ROUTES, SHARDS
from integration.crashing_valkey import Valkey

from .conftest import Node, until

NAMES = ("core-0", "core-1", "core-2")


class Cores:
    """Three configured cores, of which any may run."""

    def __init__(self, redis: RedisConfig, directory: Path) -> None:
        self._redis = redis
        self._directory = directory
        self.running: dict[str, Node] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}

    async def begin(self, *names: str) -> None:
        """Start these; nothing says that they get ready."""
        for name in names:
            seeds: tuple[Address, ...] = tuple(node.address for node in self.running.values())
            node = Node(name, "core", seeds, self._redis, self._directory, cores=3)
            await node.cluster.start()
            self.running[name] = node
            self._starting[name] = asyncio.create_task(self._finish(node))

    async def ready(self) -> None:
        await asyncio.gather(*self._starting.values())

    def is_ready(self, name: str) -> bool:
        return self._starting[name].done()

    async def crash(self, *names: str) -> None:
        for name in names:
            self._starting.pop(name).cancel()
            await self.running.pop(name).crash()

    def wipe(self, name: str) -> None:
        shutil.rmtree(self._directory / name)

    async def agree(self) -> None:
        nodes = list(self.running.values())
        for shard in SHARDS:
            await until(lambda shard=shard: len({node.rlog.applied(shard) for node in nodes}) == 1)  # type: ignore[misc]
            assert len({str(node.rlog.tables.shards[shard].digests()) for node in nodes}) == 1

    async def _finish(self, node: Node) -> None:
        await node.rlog.start()
        await node.cluster.join()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path / "redis")
    yield server
    server.stop()


@pytest.fixture
async def cores(redis: Valkey, tmp_path: Path) -> AsyncIterator[Cores]:
    cores = Cores(redis.config, tmp_path)
    yield cores
    for name in list(cores.running):
        await cores.crash(name)


async def write(node: Node, numbers: range) -> None:
    await node.rlog.write(ROUTE, [ROUTES.put((b"f/%d" % number, node.incarnation), None) for number in numbers])


def routes(node: Node) -> set[tuple[bytes, str]]:
    return {key for key, _ in node.rlog.tables.routes.items()}


async def test_the_first_start_waits_for_a_majority(cores: Cores, caplog: pytest.LogCaptureFixture) -> None:
    await cores.begin("core-0")
    await until(lambda: "waiting for 2 of 3 cores to say up to where they know the log" in caplog.text)
    assert not cores.is_ready("core-0")
    await cores.begin("core-1")
    await cores.ready()
    assert cores.running["core-0"].rlog.applied(ROUTE).generation == 1
    await cores.begin("core-2")
    await cores.ready()
    await cores.agree()


async def test_an_emptied_redis_gets_all_back(cores: Cores, redis: Valkey) -> None:
    await cores.begin(*NAMES)
    await cores.ready()
    first, *others = cores.running.values()
    await write(first, range(500))
    await cores.agree()
    before, generation = routes(first), first.rlog.applied(ROUTE).generation
    redis.kill()
    await asyncio.to_thread(redis.restart, empty=True)
    await write(others[0], range(500, 501))
    await until(lambda: sum(node.rlog.redis_lost_data for node in cores.running.values()) == len(SHARDS))
    await cores.agree()
    alarms = {f"redis-lost-data/{shard}" for shard in SHARDS}
    await until(lambda: {name for name, _ in first.rlog.tables.alarms.items()} == alarms)
    await cores.agree()
    assert routes(first) == before | {(b"f/500", others[0].incarnation)}
    assert first.rlog.applied(ROUTE).generation > generation


async def test_a_blank_core_that_comes_first_waits_and_does_not_win(
    cores: Cores, redis: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    await cores.begin(*NAMES)
    await cores.ready()
    writer = cores.running["core-1"]
    await write(writer, range(100))
    await cores.agree()
    for node in cores.running.values():
        assert node.rlog.core is not None
        await node.rlog.core.snapshot(ROUTE)
    await cores.crash(*NAMES)
    redis.kill()
    await asyncio.to_thread(redis.restart, empty=True)
    cores.wipe("core-0")
    caplog.clear()
    await cores.begin("core-0")
    await until(lambda: "waiting for 2 of 3 cores" in caplog.text)
    await cores.begin("core-1")
    await cores.ready()
    assert {key for key, _ in routes(cores.running["core-0"])} == {b"f/%d" % n for n in range(100)}


async def test_a_redis_that_comes_back_with_its_data_goes_on_where_it_was(cores: Cores, redis: Valkey) -> None:
    await cores.begin(*NAMES)
    await cores.ready()
    nodes = list(cores.running.values())
    bootstraps = [node.rlog.bootstraps for node in nodes]
    await write(nodes[0], range(100))
    redis.kill()
    await asyncio.to_thread(redis.restart)
    await asyncio.gather(*(write(node, range(100, 110)) for node in nodes))
    await cores.agree()
    assert len(routes(nodes[0])) == 100 + 3 * 10
    assert [node.rlog.bootstraps for node in nodes] == bootstraps, "everybody tailed on"
    assert sum(node.rlog.redis_lost_data for node in nodes) == 0


async def test_writes_that_an_older_redis_lost_come_from_the_cores(cores: Cores, redis: Valkey) -> None:
    await cores.begin(*NAMES)
    await cores.ready()
    nodes = list(cores.running.values())
    await write(nodes[0], range(50))
    await asyncio.to_thread(redis.save)
    await write(nodes[0], range(50, 100))
    await cores.agree()
    redis.kill()
    await asyncio.to_thread(redis.restart, older=True)
    await write(nodes[1], range(100, 101))
    await cores.agree()
    assert len(routes(nodes[2])) == 101
    assert sum(node.rlog.redis_lost_data for node in nodes) >= 1


async def test_a_core_whose_tables_are_wrong_finds_it_and_bootstraps(
    cores: Cores, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("flockmq.bounds.LOG_CHECKPOINT_EVERY_S", 0.5)
    monkeypatch.setattr("flockmq.bounds.LOG_MEND_SPREAD_S", 0.5)
    await cores.begin(*NAMES)
    await cores.ready()
    nodes = list(cores.running.values())
    await write(nodes[0], range(100))
    await cores.agree()
    nodes[2].rlog.tables.routes.apply(PUT, nodes[2].incarnation, [b"ghost"], [b""])
    await write(nodes[1], range(100, 101))
    await until(lambda: nodes[2].rlog.digest_mismatches == 1)
    await until(lambda: (b"ghost", nodes[2].incarnation) not in routes(nodes[2]))
    await cores.agree()
    assert "are not those of a majority of the cores: it bootstraps them anew" in caplog.text
    await until(lambda: "digests/route/core-2" in dict(nodes[0].rlog.tables.alarms.items()))
    # nobody writes to the shard: the leader has them compare once more all the same
    await until(lambda: not list(nodes[0].rlog.tables.alarms.items()))
    assert [node.rlog.digest_mismatches for node in nodes] == [0, 0, 1]
