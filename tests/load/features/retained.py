"""Retained messages: each device writes to its topic 1, 2, 3 …, comes back at another node between writes, and awaits
each acknowledgement before the next; now and then it clears. What one writes expires at times. One writes to each of
its topics once, in the beginning.
Subscribers come with each way of Retain Handling. In the
end a new subscriber at every node says what is retained there.
"""

from __future__ import annotations

import asyncio
from typing import Final

from load import habits
from load.feature import Feature
from load.player import CLEAN, CLEAN_311, DURABLE, Player
from load.sending import Publication
from load.subscribing import Wish

DEVICES: Final = ((DURABLE, 0.0), (CLEAN, 0.0), (CLEAN_311, 0.0), (DURABLE, 0.5))
"""And which share of their messages expires."""
PATIENCE_S: Final = 2.0
MOVE_SHARE: Final = 0.4
"""Of writes behind which a device comes to another node."""
CLEAR_SHARE: Final = 0.1
EXPIRIES_S: Final = (1, 4)
ONCE: Final = 3
"""Topics that are written to once."""
RETAIN_HANDLING: Final = (0, 1, 2)
ASK_S: Final = (0.5, 2.0)


def play(feature: Feature) -> None:
    for i, (terms, expiring) in enumerate(DEVICES):
        device = feature.player(f"device{i}", terms)
        feature.act(_write, feature, device, f"{feature.root}/{i}", feature.rate / len(DEVICES), expiring)
    feature.act(_write_once, feature.player("once", DURABLE), f"{feature.root}/once")
    for handling in RETAIN_HANDLING:
        wish = Wish(f"{feature.root}/#", retain_handling=handling)
        for name, terms in (("clean", CLEAN), ("durable", DURABLE)):
            feature.act(_ask_again, feature.player(f"{name}-handles{handling}", terms, [wish]), wish.filter)
    feature.retains = True


async def _write(feature: Feature, device: Player, topic: str, rate: float, expiring: float) -> None:
    dice, number = feature.stage.random, 0
    while True:
        await asyncio.sleep(dice.expovariate(rate))
        number += 1
        clears = dice.random() < CLEAR_SHARE
        expiry_s = dice.choice(EXPIRIES_S) if dice.random() < expiring else -1
        publication = Publication(
            topic, 1 + number % 2, retain=True, clears=clears, expiry_s=expiry_s, has_properties=not clears
        )
        if not await device.sending.published(publication, PATIENCE_S):
            device.drop()
            continue
        feature.came()
        if dice.random() < MOVE_SHARE:
            await habits.move(device)


async def _write_once(device: Player, topic: str) -> None:
    for i in range(ONCE):
        await device.sending.room()
        device.sending.publish(Publication(f"{topic}/{i}", 1 + i % 2, retain=True, has_properties=True))


async def _ask_again(player: Player, filter: str) -> None:
    """For what it has, or anew."""
    dice = player.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*ASK_S))
        if dice.random() < 0.5:
            player.subscribing.want(())
            await asyncio.sleep(dice.uniform(*ASK_S) / 4)
            player.subscribing.want((filter,))
        elif player.link is not None and player.subscribing.has(filter):
            player.subscribing.subscribe(filter)
