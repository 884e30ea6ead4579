from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.dev.commands import Commands


@pytest.fixture
def flockmq() -> Iterator[Commands]:
    """Starts `flockmq` commands; whatever a test leaves running is killed."""
    commands = Commands()
    yield commands
    commands.end_all()
