"""A network of homes whose beats come all the time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from flockmq.home import service
from unit.broker.home.network import Network


@pytest.fixture
async def network(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Network]:
    monkeypatch.setattr(service, "BEAT_S", 0.0)
    made = Network()
    yield made
    await made.stop()
