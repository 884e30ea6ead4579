"""Takeovers: one client id comes to several nodes at once, again and again, while it publishes, or messages come."""

from __future__ import annotations

import asyncio
from typing import Final

from load import habits
from load.feature import Feature
from load.features.base import publications
from load.player import CLEAN, DURABLE, DURABLE_311, Player
from load.subscribing import Wish

EVERY_S: Final = (0.3, 2.0)
AT_ONCE: Final = (2, 4)


def play(feature: Feature) -> None:
    root, each = feature.root, feature.rate / 2
    for name, terms in (("calm", CLEAN), ("storms", DURABLE)):
        publisher = feature.player(f"pub-{name}", terms)
        feature.act(habits.publish, publisher, each, publications(f"{root}/{publisher.name}"))
        if terms.lasts:
            feature.act(_storm, feature, publisher)
    for name, terms in (("clean", CLEAN), ("durable", DURABLE), ("durable-311", DURABLE_311)):
        feature.act(_storm, feature, feature.player(name, terms, [Wish(f"{root}/#")]))
    feature.player("stays", DURABLE, [Wish(f"{root}/#")])


async def _storm(feature: Feature, player: Player) -> None:
    dice = feature.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*EVERY_S))
        if await player.rush(dice.randint(*AT_ONCE)):
            feature.came()
