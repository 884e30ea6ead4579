"""A slot sender."""

from __future__ import annotations

import pytest

from unit.broker.delivery.sender import Sender


@pytest.fixture
def sender() -> Sender:
    return Sender()
