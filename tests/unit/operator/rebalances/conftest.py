from collections.abc import AsyncIterator

import pytest

from unit.operator.rebalances.harness import Town, living


@pytest.fixture
async def town(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Town]:
    async with living(monkeypatch) as town:
        yield town
