from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.crashing_valkey import Valkey


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    """That can crash."""
    server = Valkey(tmp_path / "valkey")
    yield server
    server.stop()
