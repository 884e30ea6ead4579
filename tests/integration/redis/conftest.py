"""Servers in each shape, stopped when a test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from integration.redis.servers import Clustered, Replicated, Server


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], object]]:
    """The loop that nodes run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path / "server")
    yield started
    started.stop()


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[Replicated]:
    started = Replicated(tmp_path)
    yield started
    started.stop()


@pytest.fixture
def clustered(tmp_path: Path) -> Iterator[Clustered]:
    started = Clustered(tmp_path)
    yield started
    started.stop()
