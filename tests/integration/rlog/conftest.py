"""A real Valkey that keeps what it answered (AOF, fsync always), and nodes of the log upon it."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from flockmq.redis.link import RedisConfig
from flockmq.rlog.disk import Disk
from flockmq.rlog.ports import CorePort
from flockmq.rlog.rlog import Rlog
from integration.crashing_valkey import Valkey


class Nodes:
    """Starts nodes of the log; the fixture stops them, the last started first."""

    def __init__(self, valkey: Valkey, directory: Path, stack: AsyncExitStack) -> None:
        self._valkey = valkey
        self._directory = directory
        self._stack = stack

    async def core(self, name: str = "core", peer: CorePort | None = None) -> Rlog:
        """A core; with the same name again it is that core restarted, on its old disk."""
        return await self._started(
            Rlog(self._incarnation(name), self._valkey.config, port=peer, disk=Disk(self.data_dir(name)))
        )

    async def replicant(self, port: CorePort, name: str = "replicant", config: RedisConfig | None = None) -> Rlog:
        return await self._started(Rlog(self._incarnation(name), config or self._valkey.config, port=port))

    def data_dir(self, name: str) -> Path:
        return self._directory / name

    @staticmethod
    def _incarnation(name: str) -> str:
        return f"{name}@{secrets.token_hex(4)}"

    async def _started(self, node: Rlog) -> Rlog:
        self._stack.push_async_callback(node.stop)
        await node.start()
        return node


@pytest.fixture
async def nodes(valkey: Valkey, tmp_path: Path) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        yield Nodes(valkey, tmp_path, stack)
