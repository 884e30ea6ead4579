"""Nodes whose clients meet their access control, or ask an owner for their client ids."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from flockmq.config.auth_settings import (
    AuthenticationSettings,
    AuthorizationSettings,
    FlappingSettings,
)
from unit.broker.node.admitting import Admitting
from unit.broker.node.gate import OPEN, Gate, Make


@pytest.fixture
async def gate() -> AsyncIterator[Make]:
    made: list[Gate] = []

    def make(
        authentication: AuthenticationSettings = OPEN,
        authorization: AuthorizationSettings = AuthorizationSettings(),  # noqa: B008
        flapping: FlappingSettings = FlappingSettings(),  # noqa: B008
    ) -> Gate:
        made.append(Gate(authentication, authorization, flapping))
        return made[-1]

    yield make
    for one in made:
        one.auth.pool.close()


@pytest.fixture
def admitting() -> Admitting:
    return Admitting()
