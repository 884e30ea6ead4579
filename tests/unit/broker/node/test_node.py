"""What a node does of its own: everybody is asked about again when the rules change."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from flockmq.node.node import AUTHORIZATION_SLICE_CLIENTS, Node
from flockmq.session.channel import CONNECTED


class Connection:
    """Counts how often it is asked about anew."""

    def __init__(self) -> None:
        self.state = CONNECTED
        self.principal = None
        self.asked = 0

    def must_be_asked_about(self, checked: bool) -> None:
        self.asked += 1


async def test_rules_that_change_all_the_time_reach_the_last_client_too() -> None:
    node: Any = Node.__new__(Node)
    last = Connection()
    node.engine = SimpleNamespace(connections=[None] * (3 * AUTHORIZATION_SLICE_CLIENTS) + [last])
    node.clients = SimpleNamespace(must_authorize=lambda principal: True)
    node._asking_anew, node._rules_changed = None, False
    for _ in range(20):
        node.authorization_changed()
        await asyncio.sleep(0)
    assert last.asked > 1
    before = last.asked
    await node._asking_anew
    assert last.asked > before, "the last change counts"
    assert node._asking_anew is None
