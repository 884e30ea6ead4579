"""Options of subscriptions: Retain As Published, alone and beside filters without it, on live messages, on retained
ones and for members of a group; and Subscription Identifiers that change, of several filters that overlap. Some are
asked for again and again, each time with another identifier, with Retain As Published or without.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from load import habits
from load.feature import Feature
from load.history import Delivered
from load.player import CLEAN, CLEAN_311, DURABLE, Player, Terms
from load.sending import Publication
from load.subscribing import Wish

QOS: Final = (1, 2, 0)
TOPICS: Final = 2
RETAIN_EVERY: Final = 2
"""Of messages one in so many is to be retained."""
PATIENCE_S: Final = 2.0
HERE_S: Final = (2.0, 4.0)
AWAY_S: Final = (0.3, 1.0)
LATER_S: Final = (3.0, 4.0)
"""So long after it was published nobody gets it but as what is retained."""
ASK_S: Final = (0.3, 1.0)


def play(feature: Feature) -> None:
    root = feature.root
    for name, terms in (("durable", DURABLE), ("clean", CLEAN), ("311", CLEAN_311)):
        publisher = feature.player(f"pub-{name}", terms)
        feature.act(habits.publish, publisher, feature.rate / 3, partial(_publication, f"{root}/live/{name}"))
    for name, terms in (("durable", DURABLE), ("clean", CLEAN)):
        changes = _subscriber(feature, f"{name}-changes", terms)
        feature.act(_ask_otherwise, changes)
    leaves = _subscriber(feature, "leaves", DURABLE)
    feature.act(_ask_otherwise, leaves)
    feature.act(habits.leave_and_return, leaves, HERE_S, AWAY_S)
    for i, is_as_published in enumerate((True, False)):
        member = Wish(f"$share/options/{root}/live/#", as_published=is_as_published, retain_handling=2)
        feature.player(f"member{i}", (CLEAN, DURABLE)[i], [member])
    late = feature.player("late", DURABLE, [Wish(f"{root}/once/+", as_published=True)], wanted=())
    feature.act(_publish_and_ask, feature.player("once", CLEAN), late, f"{root}/once")


def _publication(root: str, number: int) -> Publication:
    turn, which = divmod(number, len(QOS))
    return Publication(f"{root}/{turn % TOPICS}", QOS[which], retain=turn % RETAIN_EVERY == 0)


def _subscriber(feature: Feature, name: str, terms: Terms) -> Player:
    """Of two filters that overlap."""
    root = f"{feature.root}/live"
    made = feature.player(
        name,
        terms,
        [
            Wish(f"{root}/#", 1, identifier=1, retain_handling=2),
            Wish(f"{root}/+/1", 2, identifier=2, as_published=True, retain_handling=2),
        ],
    )

    def heard(delivered: Delivered) -> None:
        if delivered.retained and max(delivered.identifiers, default=0) > 2:
            feature.came()

    made.taking.heard = heard
    return made


async def _ask_otherwise(player: Player) -> None:
    dice = player.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*ASK_S))
        filter = dice.choice(player.subscribing.filters)
        identifier = player.subscribing.fresh_identifier()
        player.subscribing.ask_otherwise(filter, identifier=identifier, as_published=dice.random() < 0.5)


async def _publish_and_ask(publisher: Player, late: Player, topic: str) -> None:
    for i in range(TOPICS):
        publication = Publication(f"{topic}/{i}", 1 + i % 2, retain=True)
        while not await publisher.sending.published(publication, PATIENCE_S):
            publisher.drop()
    dice = late.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*LATER_S))
        late.subscribing.want(late.subscribing.filters)
        await asyncio.sleep(dice.uniform(*ASK_S))
        late.subscribing.want(())
