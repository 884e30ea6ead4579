from __future__ import annotations

from collections.abc import Iterator

import pytest

from load.scripted import Play


@pytest.fixture
def play() -> Iterator[Play]:
    made = Play()
    yield made
    made.close()
