"""The log on each kind of Redis: with no more rights than it needs, through failovers, on several masters."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from redis.crc import key_slot

from flockmq.redis.errors import StorageUnavailable
from flockmq.redis.link import RedisConfig
from flockmq.rlog.disk import Disk
from flockmq.rlog.entry import StreamId
from flockmq.rlog.reading import log_key
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import CLUSTER, MESSAGES, NODES, RETAINED, ROUTE, ROUTES, NodeInfo, RetainedMessage
from integration.cluster.conftest import Node, until
from integration.redis.servers import PATIENCE_S, Clustered, Replicated, Server

DOCS = Path(__file__).parents[3] / "docs" / "redis.md"
WRITERS = 8


class Log:
    """A core and a replicant upon one Redis."""

    def __init__(self, config: RedisConfig, directory: Path) -> None:
        self.core = Rlog(f"core@{secrets.token_hex(4)}", config, disk=Disk(directory / "core"))
        assert self.core.core is not None
        self.replicant = Rlog(f"replicant@{secrets.token_hex(4)}", config, port=self.core.core)

    async def __aenter__(self) -> Log:
        await self.core.start()
        await self.replicant.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.replicant.stop()
        await self.core.stop()

    async def agree(self, *shards: str) -> None:
        nodes = self.core, self.replicant
        for shard in shards:
            await asyncio.gather(*(node.catch_up(shard) for node in nodes))
            assert len({node.applied(shard) for node in nodes}) == 1
            assert len({str(node.tables.shards[shard].digests()) for node in nodes}) == 1


class Writers:
    """Write routes through both nodes without a pause, and keep which were acknowledged, and at what place."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._next = 0
        self._stopping = False
        self.acknowledged: dict[bytes, StreamId] = {}
        self._tasks = [asyncio.create_task(self._run(node)) for node in (log.core, log.replicant) * (WRITERS // 2)]

    async def _run(self, node: Rlog) -> None:
        while not self._stopping:
            self._next += 1
            route = b"f/%d" % self._next
            with contextlib.suppress(StorageUnavailable):
                self.acknowledged[route] = await node.write(ROUTE, [ROUTES.put((route, "x@1"), None)])

    async def reached(self, count: int) -> None:
        """So many more are acknowledged."""
        goal = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= goal, PATIENCE_S)

    async def stop(self) -> None:
        """Returns when nothing is on its way to the log any more."""
        self._stopping = True
        await asyncio.gather(*self._tasks)


def last_in_log(server: Server, shard: str) -> StreamId:
    match server.call("XREVRANGE", log_key(shard), "+", "-", "COUNT", 1):
        case [[bytes(stream_id), _]]:
            return StreamId.parse(stream_id)
    return StreamId(0, 0)


# --- rights -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def users(server: Server) -> AsyncIterator[dict[str, RedisConfig]]:
    """Users with exactly the rights that the documentation names; nobody else is let in."""
    lines = re.findall(r"^user flockmq-(\w+) on >PASSWORD (.*)$", DOCS.read_text(), re.MULTILINE)
    assert [role for role, _ in lines] == ["core", "replicant"]
    for role, rights in lines:
        server.call("ACL", "SETUSER", role, "reset", "on", ">secret", *rights.split())
    yield {role: RedisConfig(server.url, username=role, password="secret") for role, _ in lines}
    denied = server.rows("ACL", "LOG")
    assert denied == [], "somebody was refused something"


async def test_nodes_need_no_more_rights_than_the_documentation_says(
    users: dict[str, RedisConfig], tmp_path: Path
) -> None:
    core = Node("core", "core", (), msgspec.structs.replace(users["core"], min_replicas=0), tmp_path)
    await core.start()
    replicant = Node("replicant", "replicant", (core.address,), users["replicant"], tmp_path)
    await replicant.start()
    await until(lambda: core.cluster.is_leader)
    await replicant.rlog.write(ROUTE, [ROUTES.put((b"a", replicant.incarnation), None)])
    await core.rlog.catch_up(ROUTE)
    await replicant.rlog.catch_up(ROUTE)
    assert core.rlog.core is not None
    await core.rlog.core.snapshot(ROUTE)
    core.cluster.events.buffer.add("lag", [(1, "route", 0, 0, 0, 0, 0, 0, 0)])
    await core.cluster.events.flush()
    await replicant.stop()
    await until(lambda: len(core.rlog.tables.routes) == 0)
    await core.stop()


async def test_a_replicants_user_can_write_nothing(users: dict[str, RedisConfig], server: Server) -> None:
    for command in (
        ("XADD", log_key(ROUTE), "*", "b", "x"),
        ("DEL", log_key(ROUTE)),
        ("SET", "flockmq:{route}:life", "x"),
        ("GET", "flockmq:{route}:life"),
        ("XRANGE", "flockmq:events:lag", "-", "+"),
        ("FCALL", "flockmq_append_1", 0),
        ("EVAL", "return 1", 0),
    ):
        assert server.said("ACL", "DRYRUN", "replicant", *command).startswith("User replicant has no permissions")


# --- failover ---------------------------------------------------------------------------------------------------------


async def test_a_primary_that_is_killed_under_load_loses_nothing_acknowledged(
    replicated: Replicated, tmp_path: Path
) -> None:
    config = RedisConfig(replicated.url, min_replicas=1)
    async with Log(config, tmp_path) as log:
        writers = Writers(log)
        await writers.reached(500)
        old, others = replicated.primary, replicated.replicas
        old.kill()
        before = dict(writers.acknowledged)
        assert max(last_in_log(replica, ROUTE) for replica in others) >= max(before.values())
        await writers.reached(500)
        await writers.stop()
        assert replicated.await_new_primary(old) in others
        assert max(writers.acknowledged.values()).generation > max(before.values()).generation
        await log.agree(ROUTE)
        missing = set(writers.acknowledged) - {topic for (topic, _), _ in log.replicant.tables.routes.items()}
        assert missing == set()


async def test_without_replicas_nothing_is_acknowledged(replicated: Replicated, tmp_path: Path) -> None:
    config = RedisConfig(replicated.url, min_replicas=1, wait_timeout_s=0.1)
    async with Log(config, tmp_path) as log:
        for replica in replicated.replicas:
            replica.kill()
        written = asyncio.ensure_future(log.core.write(ROUTE, [ROUTES.put((b"a", "x@1"), None)]))
        await until(lambda: len(log.core.tables.routes) == 1, PATIENCE_S)  # it is there, but may yet be lost
        assert not written.done()
        for server in replicated.servers:
            if server is not replicated.primary:
                server.start()
        await written


# --- cluster ----------------------------------------------------------------------------------------------------------


WRITES = {
    CLUSTER: NODES.put("x@1", NodeInfo("x", "core", "h", 1, 1, "0")),
    ROUTE: ROUTES.put((b"a", "x@1"), None),
    RETAINED: MESSAGES.put(b"a", RetainedMessage(b"", 0, b"", 4)),
}


async def test_shards_on_different_masters_go_on_without_one_another(clustered: Clustered, tmp_path: Path) -> None:
    for server in clustered.servers:
        server.call("CONFIG", "SET", "cluster-require-full-coverage", "no")
    async with Log(RedisConfig(clustered.url), tmp_path) as log:
        for shard, op in WRITES.items():
            await log.replicant.write(shard, [op])
        await log.agree(*WRITES)
        assert last_in_log(clustered.masters[0], ROUTE) == log.core.applied(ROUTE)
        clustered.masters[0].kill()
        waiting = asyncio.ensure_future(log.replicant.write(ROUTE, [ROUTES.put((b"b", "x@1"), None)]))
        for shard in (CLUSTER, RETAINED):
            for _ in range(20):
                await log.replicant.write(shard, [WRITES[shard]])
        assert not waiting.done()
        clustered.masters[0].start()
        await waiting
        await log.agree(*WRITES)
        assert len(log.core.tables.routes) == 2


async def test_a_shard_moves_to_another_master_under_load(clustered: Clustered, tmp_path: Path) -> None:
    source, target, _ = clustered.masters
    async with Log(RedisConfig(clustered.url), tmp_path) as log:
        writers = Writers(log)
        await writers.reached(200)
        await asyncio.to_thread(clustered.move_slot, key_slot(log_key(ROUTE).encode()), source, target)
        await writers.reached(200)
        await writers.stop()
        await log.agree(ROUTE)
        assert last_in_log(target, ROUTE) == log.core.applied(ROUTE)
        missing = set(writers.acknowledged) - {topic for (topic, _), _ in log.replicant.tables.routes.items()}
        assert missing == set()
