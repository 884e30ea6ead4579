"""Overlapping filters, each with a Subscription Identifier; clients that don't want to hear themselves; others that ask
for what they have at another QoS.
"""

from __future__ import annotations

import asyncio
from typing import Final

from load import habits
from load.feature import Feature
from load.features.base import publications
from load.history import Delivered
from load.player import CLEAN, CLEAN_311, DURABLE, Player, Terms
from load.subscribing import Wish

HERE_S: Final = (2.0, 4.0)
AWAY_S: Final = (0.3, 1.0)


def play(feature: Feature) -> None:
    root, each = feature.root, feature.rate / 3
    publisher = feature.player("pub", CLEAN_311)
    feature.act(habits.publish, publisher, each, publications(f"{root}/{publisher.name}"))
    for name, terms in (("durable", DURABLE), ("clean", CLEAN)):
        subscriber(feature, f"{name}-overlaps", terms)
        deaf = feature.player(f"{name}-not-itself", terms, [Wish(f"{root}/#", no_local=True)])
        feature.act(habits.publish, deaf, each, publications(f"{root}/{deaf.name}"))
    leaver = subscriber(feature, "leaves", DURABLE)
    feature.act(habits.leave_and_return, leaver, HERE_S, AWAY_S)
    feature.act(habits.churn, subscriber(feature, "churns", DURABLE))
    for name, terms in (("durable", DURABLE), ("clean", CLEAN)):
        feature.act(_ask_otherwise, feature.player(f"{name}-asks-otherwise", terms, [Wish(f"{root}/#", 1)]))


async def _ask_otherwise(player: Player) -> None:
    dice = player.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*habits.CHURN_S))
        for filter in player.subscribing.filters:
            player.subscribing.ask_otherwise(filter, qos=dice.randint(0, 2))


def subscriber(feature: Feature, name: str, terms: Terms) -> Player:
    """Of four filters that overlap."""
    root = feature.root
    filters = (f"{root}/#", 1), (f"{root}/+/2/+", 2), (f"{root}/+/+/0", 0), (f"{root}/+/1/1", 2)
    wishes = [Wish(filter, qos, identifier=i) for i, (filter, qos) in enumerate(filters, 1)]

    def heard(delivered: Delivered) -> None:
        if len(delivered.filters) > 1:
            feature.came()

    made = feature.player(name, terms, wishes)
    made.taking.heard = heard
    return made
