"""Big payloads, now and then: to durable sessions, of which one is away at times, and to clean ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Final

from load import habits
from load.feature import Feature
from load.player import CLEAN, CLEAN_311, DURABLE, DURABLE_311, Player
from load.sending import Publication
from load.subscribing import Wish

SIZES_BYTES: Final = (64 * 1024, 256 * 1024)
HERE_S: Final = (2.0, 4.0)
AWAY_S: Final = (0.5, 1.5)


def play(feature: Feature) -> None:
    for i, terms in enumerate((DURABLE, CLEAN_311)):
        publisher = feature.player(f"pub{i}", terms)
        publish = partial(_publish, publisher, feature.root, cycle((2, 1)))
        feature.act(habits.seldom, publisher, feature.rate / 2, publish)
    wishes = [Wish(f"{feature.root}/#")]
    for i, terms in enumerate((CLEAN, DURABLE)):
        feature.counts(feature.player(f"stays{i}", terms, wishes))
    feature.act(habits.leave_and_return, feature.player("leaves", DURABLE_311, wishes), HERE_S, AWAY_S)


async def _publish(publisher: Player, root: str, levels: Iterator[int]) -> None:
    await publisher.sending.room()
    qos, size = next(levels), publisher.stage.random.randint(*SIZES_BYTES)
    publisher.sending.publish(Publication(f"{root}/{publisher.name}/{qos}", qos, size=size))
