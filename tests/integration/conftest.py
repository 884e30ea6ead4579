from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.crashing_valkey import Valkey
from integration.dev.commands import Commands


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    """That can crash."""
    server = Valkey(tmp_path / "valkey")
    yield server
    server.stop()


@pytest.fixture
def flockmq() -> Iterator[Commands]:
    """Starts `flockmq` commands; whatever a test leaves running is killed."""
    commands = Commands()
    yield commands
    commands.end_all()
