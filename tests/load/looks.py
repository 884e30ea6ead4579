"""What is looked at when all is quiet: by clients that come for it alone."""

from __future__ import annotations

import asyncio
from typing import Final

from load.history import Delivered, Message, RetainedStood
from load.player import CLEAN, Player
from load.stage import Node, Stage
from load.subscribing import Wish
from load.waiting import until

QUIET_S: Final = 0.5


async def retained(stage: Stage, chapter: int) -> None:
    """What each node has retained of the chapter's topics."""
    await asyncio.gather(*(_retained_at(stage, node, chapter) for node in stage.nodes()))


async def _retained_at(stage: Stage, node: Node, chapter: int) -> None:
    values: dict[str, Message] = {}
    looker = Player(stage, f"{chapter}-looks-at-{node.name}", CLEAN, [Wish(f"load{chapter}/#")])

    def heard(delivered: Delivered) -> None:
        if delivered.retained:
            values[delivered.topic] = Message(delivered.publisher, delivered.number)

    looker.taking.heard = heard
    await looker.reach(node)
    await until(lambda: looker.is_settled)
    known = -1
    while known != len(values):
        known = len(values)
        await asyncio.sleep(QUIET_S)
    stage.record(RetainedStood(stage.now(), node.name, values))
    await looker.leave()
