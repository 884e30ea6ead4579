"""Everybody is asked about again when the rules change."""

from __future__ import annotations

import asyncio
from typing import Any

from flockmq.bounds import AUTHORIZATION_SLICE_CLIENTS
from flockmq.node.authorization import PublishReauthorization
from flockmq.protocol.channel import CONNECTED


class Connection:
    """Counts how often it is asked about anew."""

    def __init__(self) -> None:
        self.state = CONNECTED
        self.principal = None
        self.asked = 0

    def set_must_authorize(self, checked: bool) -> None:
        self.asked += 1


async def test_rules_that_change_all_the_time_reach_the_last_client_too() -> None:
    last = Connection()
    connections: Any = [None] * (3 * AUTHORIZATION_SLICE_CLIENTS) + [last]
    reauthorizing = PublishReauthorization(lambda: connections, lambda principal: True)
    for _ in range(20):
        reauthorizing.rules_changed()
        await asyncio.sleep(0)
    assert last.asked > 1
    before = last.asked
    await reauthorizing.done()
    assert last.asked > before, "the last change counts"
