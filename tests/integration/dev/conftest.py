from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.dev.commands import Commands


@pytest.fixture
def flockmq() -> Iterator[Commands]:
    """Each command a Python of its own: how it begins and ends is what is tested here."""
    commands = Commands(forks=False)
    yield commands
    commands.end_all()
