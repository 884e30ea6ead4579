from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from unit.operator.kubectl.harness import Town, living


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with living(tmp_path) as town:
        yield town
