"""A client with a durable session comes back with another version of MQTT. MQTT 3.1.1 knows no Subscription
Identifiers, and what waited with some comes all the same.
"""

from __future__ import annotations

from load import habits
from load.feature import Feature
from load.features import overlap
from load.features.base import publications
from load.history import Delivered
from load.player import CLEAN_311, DURABLE, DURABLE_311


def play(feature: Feature) -> None:
    publisher = feature.player("pub", CLEAN_311)
    feature.act(habits.publish, publisher, feature.rate, publications(f"{feature.root}/{publisher.name}"))
    changer = overlap.subscriber(feature, "changes", DURABLE)
    changer.turns = DURABLE, DURABLE_311

    def heard(_: Delivered) -> None:
        if changer.terms.version == DURABLE_311.version:
            feature.came()

    changer.taking.heard = heard
    feature.act(habits.leave_and_return, changer, overlap.HERE_S, overlap.AWAY_S)
