from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.dev.commands import Commands


@pytest.fixture(scope="module")
def flockmq() -> Iterator[Commands]:
    commands = Commands()
    yield commands
    commands.end_all()


@pytest.fixture(scope="module")
def port(flockmq: Commands, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Where a single node listens."""
    _, ports = flockmq.start_node("--data-dir", str(tmp_path_factory.mktemp("data")))
    mqtt: int = ports["mqtt"]
    return mqtt
