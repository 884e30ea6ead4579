"""Delayed messages, `$delayed/N/topic`: one by one, and several in the same millisecond."""

from __future__ import annotations

import asyncio
from typing import Final

from load import habits
from load.feature import Feature
from load.player import CLEAN, CLEAN_311, DURABLE, DURABLE_311, Player
from load.sending import Publication
from load.subscribing import Wish

QOS: Final = (1, 2, 1, 2, 0)
DELAYS_S: Final = (1, 3)
AT_ONCE_MAX: Final = 5
HERE_S: Final = (1.0, 3.0)
AWAY_S: Final = (0.5, 2.0)
TWICE_S: Final = 5.0
LOST_S: Final = 11.0
"""After it was due."""


def play(feature: Feature) -> None:
    feature.late_s = DELAYS_S[-1] + TWICE_S, DELAYS_S[-1] + LOST_S
    publishers = [feature.player(f"pub{i}", terms) for i, terms in enumerate((DURABLE, CLEAN_311))]
    for publisher in publishers:
        feature.act(_publish, feature, publisher, feature.rate / len(publishers))
    wishes = [Wish(f"{feature.root}/#")]
    for i, terms in enumerate((CLEAN, DURABLE)):
        feature.counts(feature.player(f"stays{i}", terms, wishes))
    feature.act(habits.leave_and_return, feature.player("leaves", DURABLE_311, wishes), HERE_S, AWAY_S)


async def _publish(feature: Feature, player: Player, rate: float) -> None:
    dice, number = feature.stage.random, 0
    while True:
        count = dice.randint(1, AT_ONCE_MAX)
        await asyncio.sleep(dice.expovariate(rate / count))
        delay_s = dice.randint(*DELAYS_S)
        for _ in range(count):
            await player.sending.room()
            number += 1
            qos = QOS[number % len(QOS)]
            topic = f"{feature.root}/{player.name}/{qos}"
            player.sending.publish(Publication(topic, qos, delay_s=delay_s, has_properties=True))
