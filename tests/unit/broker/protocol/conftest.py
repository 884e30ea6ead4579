"""A node whose clients speak to it directly."""

from __future__ import annotations

import pytest

from unit.broker.protocol.harness import Node


@pytest.fixture
def node() -> Node:
    return Node()
