"""Which core replicants write through."""

from __future__ import annotations

import pytest

from flockmq.membership import replicant_balance
from flockmq.rlog.schema import ROUTE, ROUTES

from .conftest import Node, Nodes, until


def share(core: Node, replicants: list[Node]) -> int:
    return sum(replicant.cluster.core_port.core == core.incarnation for replicant in replicants)


async def test_replicants_spread_again_when_a_core_comes(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicant_balance, "MOVE_EVERY_S", 0.5)
    first = await nodes.start("core-0", "core")
    replicants = [await nodes.start(f"replicant-{number}", "replicant") for number in range(4)]
    assert share(first, replicants) == 4
    second = await nodes.start("core-1", "core")
    for number in range(200):
        for replicant in replicants:
            await replicant.rlog.write(ROUTE, [ROUTES.put((b"%d" % number, replicant.incarnation), None)])
        if share(second, replicants) == 2:
            break
    await until(lambda: share(first, replicants) == 2)
    for node in (first, second, *replicants):
        await node.rlog.catch_up(ROUTE)
        assert len(node.rlog.tables.routes) == 4 * (number + 1)
