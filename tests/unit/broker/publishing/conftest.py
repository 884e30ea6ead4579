"""A node that publishes, and tries again at once."""

from __future__ import annotations

import pytest

from flockmq.publishing import unattended
from unit.broker.publishing.published import Published


@pytest.fixture
def tries_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unattended, "OFFER_RETRY_MIN_S", 0.0)
    monkeypatch.setattr(unattended, "OFFER_RETRY_MAX_S", 0.0)


@pytest.fixture
async def published(tries_again_at_once: None) -> Published:
    return Published()
