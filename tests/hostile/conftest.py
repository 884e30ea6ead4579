from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.broker.conftest import Node
from integration.dev.commands import Commands


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    commands = Commands()
    try:
        yield Node("n", *commands.start_node("--data-dir", str(tmp_path)))
    finally:
        commands.end_all()
