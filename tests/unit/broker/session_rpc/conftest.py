"""A network of owners."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from unit.broker.session_rpc.network import Network


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    made = Network()
    yield made
    await made.stop()
