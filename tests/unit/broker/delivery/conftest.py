"""A slot sender, and the cluster around it."""

from __future__ import annotations

import pytest

from flockmq.membership.cluster import Cluster
from unit.broker.delivery.sender import Sender
from unit.broker.membership.lone_cluster import lone_cluster


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
async def cluster() -> Cluster:
    return lone_cluster()
