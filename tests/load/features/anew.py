"""Sessions that end and begin: a client comes back with Clean Start, or without, for a session that lasts, or ends with
its connection, with MQTT 5 or 3.1.1; or says at DISCONNECT for how long its session lasts. It has a will.
"""

from __future__ import annotations

import asyncio
from typing import Final

from load import habits
from load.feature import Feature
from load.history import Will
from load.player import CLEAN, CLEAN_311, DURABLE, DURABLE_311, Player
from load.sending import Publication
from load.subscribing import Wish
from load.waiting import until

TURNS: Final = (
    DURABLE,
    DURABLE._replace(begins_anew=True),
    DURABLE._replace(goes_on=True, expiry_s=0.0),
    CLEAN,
    DURABLE_311,
    CLEAN_311,
)
SAID_S: Final = (1, 2, 3600)
"""At DISCONNECT."""
HERE_S: Final = (0.3, 1.5)
AWAY_S: Final = (0.2, 3.0)
OUTLIVES_S: Final = (0.3, 4.5)
TWICE_S: Final = 7.0
LOST_S: Final = 34.0
"""A will's delay, and what it may take where a fault hid that a client went."""


def play(feature: Feature) -> None:
    feature.late_s = TWICE_S, LOST_S
    for name, terms in (("durable", DURABLE), ("clean", CLEAN)):
        publisher = feature.player(f"pub-{name}", terms)
        root = f"{feature.root}/{name}"
        feature.act(habits.publish, publisher, feature.rate / 2, lambda number, root=root: _publication(root, number))
    for i, delay_s in enumerate((0.0, 2.0)):
        changes = feature.player(f"changes{i}", DURABLE, [Wish(f"{feature.root}/+/+"), Wish(f"{feature.root}/+/1", 1)])
        changes.turns = TURNS
        changes.will = Will(0, f"{feature.root}/gone/{i}", 1 + i, delay_s=delay_s)
        feature.act(_come_and_go, feature, changes)
    says = feature.player("says", DURABLE, [Wish(f"{feature.root}/+/+")])
    feature.act(_say_for_how_long, feature, says)
    for name, terms in (("watches", DURABLE), ("watches-clean", CLEAN)):
        feature.player(name, terms, [Wish(f"{feature.root}/#")])


def _publication(root: str, number: int) -> Publication:
    return Publication(f"{root}/{1 + number % 2}", 1 + number % 2)


async def _come_and_go(feature: Feature, player: Player) -> None:
    dice = feature.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*HERE_S))
        if dice.random() < 0.3:
            await player.connect(anew=True)
        else:
            habits.go(player)
            await asyncio.sleep(dice.uniform(*AWAY_S))
            player.come_back()
        await until(lambda: player.is_settled)
        feature.came()


async def _say_for_how_long(feature: Feature, player: Player) -> None:
    dice = feature.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*HERE_S))
        player.stay_away()
        player.disconnect(expiry_s=dice.choice(SAID_S))
        await asyncio.sleep(dice.uniform(*OUTLIVES_S))
        player.come_back()
        await until(lambda: player.is_settled)
        feature.came()
