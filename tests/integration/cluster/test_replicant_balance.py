"""Which core replicants write through."""

from __future__ import annotations

import pytest

from flockmq.membership import replicant_balance
from flockmq.rlog.schema import ROUTE, ROUTES

from .conftest import Node, Nodes, until


def share(core: Node, edges: list[Node]) -> int:
    return sum(edge.cluster.core_port.core == core.incarnation for edge in edges)


async def test_replicants_spread_again_when_a_core_comes(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicant_balance, "MOVE_EVERY_S", 0.5)
    first = await nodes.start("core-0", "core")
    edges = [await nodes.start(f"edge-{number}", "replicant") for number in range(4)]
    assert share(first, edges) == 4
    second = await nodes.start("core-1", "core")
    for number in range(200):
        for edge in edges:
            await edge.rlog.write(ROUTE, [ROUTES.put((b"%d" % number, edge.incarnation), None)])
        if share(second, edges) == 2:
            break
    await until(lambda: share(first, edges) == 2)
    for node in (first, second, *edges):
        await node.rlog.catch_up(ROUTE)
        assert len(node.rlog.tables.routes) == 4 * (number + 1)
