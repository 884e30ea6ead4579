"""Exclusive subscriptions: several clients want the same `$exclusive/` filters, hold one for a while, ask again for
what they hold, and give it up by UNSUBSCRIBE or by ending.
"""

from __future__ import annotations

import asyncio
from typing import Final

from load import habits
from load.feature import Feature
from load.player import CLEAN, CLEAN_311, DURABLE, DURABLE_311, Player
from load.sending import Publication
from load.subscribing import Wish
from load.waiting import holds_within

LOCKS: Final = 2
CLIENTS: Final = (CLEAN, DURABLE, CLEAN_311, DURABLE_311)
WAIT_MAX_S: Final = 3.0
HOLD_S: Final = (0.2, 1.2)
REST_S: Final = (0.1, 1.0)
ASK_AGAIN_SHARE: Final = 0.3
END_SHARE: Final = 0.3
"""Of locks that are given up by the end of a session, or of a connection."""


def play(feature: Feature) -> None:
    locks = [f"{feature.root}/{i}" for i in range(LOCKS)]
    for i, terms in enumerate(CLIENTS):
        wishes = [Wish(f"$exclusive/{topic}") for topic in locks]
        feature.act(_compete, feature, feature.player(f"wants{i}", terms, wishes, wanted=()))
    feature.act(
        habits.publish,
        feature.player("pub", DURABLE),
        feature.rate,
        lambda number: Publication(locks[number % LOCKS], 1 + number // LOCKS % 2),
    )


async def _compete(feature: Feature, player: Player) -> None:
    dice, wants = feature.stage.random, player.subscribing
    while True:
        await asyncio.sleep(dice.uniform(*REST_S))
        lock = dice.choice(wants.filters)
        wants.want((lock,))
        if not await holds_within(WAIT_MAX_S, lambda: wants.has(lock)):  # noqa: B023 - waited for here
            wants.want(())
            continue
        feature.came()
        await asyncio.sleep(dice.uniform(*HOLD_S))
        if dice.random() < ASK_AGAIN_SHARE and player.link is not None and wants.has(lock):
            wants.subscribe(lock)
            await asyncio.sleep(dice.uniform(*HOLD_S))
        wants.want(()) if dice.random() > END_SHARE else _end(player)


def _end(player: Player) -> None:
    """By the end of the session where the client can tell the node, otherwise by a connection that breaks."""
    if player.terms == DURABLE:
        player.disconnect(ends=True)
    else:
        player.drop()
    player.subscribing.want(())
