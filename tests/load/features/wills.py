"""Wills: with and without a delay, of clean and durable sessions; retained, as "offline" beside an acknowledged
retained "online". Connections break, are ended in order, with the will all the same (0x04), or are taken over; the
client comes back before its will is due, or behind that; or it tries once, and stays away when it is refused.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from load.feature import Feature
from load.history import Delivered, Will
from load.player import CLEAN, CLEAN_311, DURABLE, DURABLE_311, Player, Terms
from load.sending import Publication
from load.subscribing import Wish
from load.waiting import until

MORTALS: Final[tuple[tuple[str, Terms, float], ...]] = (
    ("clean", CLEAN, 0.0),
    ("clean-late", CLEAN, 2.0),
    ("clean-311", CLEAN_311, 0.0),
    ("durable", DURABLE, 0.0),
    ("durable-late", DURABLE, 2.0),
    ("durable-311", DURABLE_311, 0.0),
    ("short-late", DURABLE._replace(expiry_s=1.0), 3.0),
)
"""Names, and their wills' delays. The will of a session that ends before its delay is over is due then."""
STATES: Final = (("state-clean", CLEAN, 0.0), ("state-durable", DURABLE, 1.0))
HERE_S: Final = (0.3, 2.0)
AWAY_S: Final = (0.2, 3.5)
PATIENCE_S: Final = 2.0
CONNACK_MAX_S: Final = (1.0, 9.0)
"""A node refuses whom it can't let in sooner than the second."""
STAYS_S: Final = 34.0
"""How long who was refused stays away at the end: its will must have come."""
TWICE_S: Final = 9.0
"""A delay, and what an owner waits for a client whose node died, and a little."""
LOST_S: Final = 34.0
"""A delay, and what it may take where a fault hid that a client went."""


def play(feature: Feature) -> None:
    lives_s = len(MORTALS) / feature.rate
    for i, (name, terms, delay_s) in enumerate(MORTALS):
        mortal = feature.player(name, terms)
        mortal.will = Will(0, f"{feature.root}/gone/{name}", 1 + i % 2, delay_s=delay_s)
        feature.act(_live_and_die, mortal, lives_s)
    for name, terms, delay_s in STATES:
        topic = f"{feature.root}/state/{name}"
        mortal = feature.player(name, terms)
        mortal.will = Will(0, topic, 1, retain=True, delay_s=delay_s)
        feature.act(_live_and_die, mortal, lives_s)
        feature.act(_say_online, mortal, topic)
    for name, delay_s in (("refused", 0.0), ("refused-late", 2.0)):
        mortal = feature.player(name, DURABLE)
        mortal.will = Will(0, f"{feature.root}/gone/{name}", 1, delay_s=delay_s)
        feature.act(_try_once, mortal, lives_s)
        feature.mend.append(partial(_stay, mortal))
    for name, terms in (("watches", DURABLE), ("watches-clean", CLEAN), ("watches-311", DURABLE_311)):
        watcher = feature.player(name, terms, [Wish(f"{feature.root}/#")])
        watcher.taking.heard = partial(_heard, feature)
    feature.retains = True
    feature.late_s = TWICE_S, LOST_S


def _heard(feature: Feature, delivered: Delivered) -> None:
    if delivered.publisher.endswith("!") and not delivered.retained:
        feature.came()


async def _live_and_die(player: Player, lives_s: float) -> None:
    dice = player.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*HERE_S) + dice.expovariate(1 / lives_s))
        if dice.random() < 0.25:
            await player.connect(anew=True)
            continue
        player.stay_away()
        match dice.randrange(3 if player.terms.version == 5 else 2):
            case 0:
                player.drop()
            case 1:
                player.disconnect()
            case 2:
                player.disconnect(with_will=True)
        await asyncio.sleep(dice.uniform(*AWAY_S))
        player.come_back()


async def _try_once(player: Player, lives_s: float) -> None:
    """Until it is refused, or leaves before it is."""
    dice = player.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*HERE_S) + dice.expovariate(1 / lives_s))
        player.stay_away()
        player.drop()
        await asyncio.sleep(dice.uniform(*AWAY_S))
        player.patience_s = dice.choice(CONNACK_MAX_S)
        if await player.connect():
            player.come_back()
            continue
        await asyncio.sleep(STAYS_S)
        player.come_back()


async def _stay(player: Player) -> None:
    if player.is_away:
        await asyncio.sleep(STAYS_S)


async def _say_online(player: Player, topic: str) -> None:
    """Whenever it has come."""
    while True:
        await until(lambda: player.is_connected)
        link = player.link
        await player.sending.published(Publication(topic, 1, retain=True), PATIENCE_S)
        await until(lambda: player.link is not link)  # noqa: B023 - waited for here
