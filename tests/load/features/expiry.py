"""Expiry: sessions of one to three seconds whose clients are away for less and for more, and messages that expire
while clients are away.
"""

from __future__ import annotations

import asyncio
from typing import Final

from load import habits
from load.feature import Feature
from load.player import CLEAN, DURABLE, DURABLE_311, Player
from load.sending import Publication
from load.subscribing import Wish
from load.waiting import until

EXPIRIES_S: Final = (1, 2, 3)
HERE_S: Final = (0.5, 1.5)
AWAY_S: Final = (0.3, 4.5)


def play(feature: Feature) -> None:
    publisher = feature.player("pub", DURABLE)
    feature.act(habits.publish, publisher, feature.rate, lambda number: _publication(feature, publisher, number))
    wishes = [Wish(f"{feature.root}/#")]
    for expiry_s in EXPIRIES_S:
        short = feature.player(f"lasts{expiry_s}", DURABLE._replace(expiry_s=float(expiry_s)), wishes)
        feature.act(_come_and_go, feature, short)
    for name, terms in (("5", DURABLE), ("311", DURABLE_311)):
        feature.act(_come_and_go, feature, feature.player(f"lasts-long-{name}", terms, wishes))
    feature.player("stays", CLEAN, wishes)


def _publication(feature: Feature, publisher: Player, number: int) -> Publication:
    qos = 1 + number % 2
    expiry_s = feature.stage.random.choice((-1, *EXPIRIES_S))
    return Publication(f"{feature.root}/{publisher.name}/{qos}", qos, expiry_s=expiry_s)


async def _come_and_go(feature: Feature, player: Player) -> None:
    dice = feature.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*HERE_S))
        habits.go(player)
        await asyncio.sleep(dice.uniform(*AWAY_S))
        player.come_back()
        await until(lambda: player.is_settled)
        feature.came()
