"""A node that publishes, and tries again at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from flockmq.publishing import delayed, unattended
from unit.broker.publishing.delayed_log import Host, Log
from unit.broker.publishing.published import Published


@pytest.fixture
def tries_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unattended, "OFFER_RETRY_MIN_S", 0.0)
    monkeypatch.setattr(unattended, "OFFER_RETRY_MAX_S", 0.0)


@pytest.fixture
async def published(tries_again_at_once: None) -> Published:
    return Published()


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Log]:
    """Two nodes; the first leads."""
    monkeypatch.setattr(delayed, "DELAYED_LOOK_S", 0.002)
    made = Log()
    Host(made).is_leader = True
    Host(made)
    running = [asyncio.ensure_future(host.delayed.run()) for host in made.hosts]
    yield made
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
