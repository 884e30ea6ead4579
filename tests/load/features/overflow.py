"""Overflow: more comes for a client that is away than its node keeps (`max_mqueue_len`), so the oldest goes."""

from __future__ import annotations

import asyncio
from typing import Final

from load.feature import Feature
from load.player import DURABLE, DURABLE_311, Player
from load.sending import Publication
from load.subscribing import Wish
from load.waiting import holds_within, until

BEYOND: Final = 1.3
"""How many times what is kept comes."""
HERE_S: Final = (1.0, 2.0)
PATIENCE_S: Final = 10.0


def play(feature: Feature) -> None:
    for i, terms in enumerate((DURABLE, DURABLE_311)):
        root = f"{feature.root}/{i}"
        subscriber = feature.player(f"leaves{i}", terms, [Wish(f"{root}/#")])
        feature.act(_overflow, feature, feature.player(f"pub{i}", DURABLE), subscriber, root)


async def _overflow(feature: Feature, publisher: Player, subscriber: Player, root: str) -> None:
    number, count = 0, int(BEYOND * feature.stage.limits.max_mqueue_len)
    while True:
        await asyncio.sleep(feature.stage.random.uniform(*HERE_S))
        subscriber.stay_away()
        subscriber.disconnect()
        await until(lambda: subscriber.link is None)
        for _ in range(count):
            await publisher.sending.room()
            number += 1
            publisher.sending.publish(Publication(f"{root}/{1 + number % 2}", 1 + number % 2))
        await holds_within(PATIENCE_S, lambda: publisher.sending.is_idle)
        came = subscriber.taking.deliveries
        subscriber.come_back()
        if await holds_within(PATIENCE_S, lambda: subscriber.taking.deliveries > came):  # noqa: B023 - waited for here
            feature.came()
        await asyncio.sleep(count / feature.rate)
