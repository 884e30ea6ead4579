"""What listeners may take of a node's memory."""

from __future__ import annotations

import pytest

from flockmq.config.schema import Node
from flockmq.node.listeners import shares

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("node", "memory", "expected"),
    [
        (Node(), 64 * MIB, (4 * MIB, 4_096)),
        (Node(), 256 * MIB, (16 * MIB, 16_384)),
        (Node(), 24 * 1024 * MIB, (24 * MIB, 500_000)),
        (Node(max_connections=100), 256 * MIB, (16 * MIB, 50)),
        (Node(max_connections=1), 256 * MIB, (16 * MIB, 1)),
        (Node(max_unauthenticated_bytes=64 * MIB, max_connections_per_address=7), 256 * MIB, (64 * MIB, 7)),
    ],
)
def test_what_is_not_configured_follows_the_memory(node: Node, memory: int, expected: tuple[int, int]) -> None:
    assert shares(node, memory) == expected
