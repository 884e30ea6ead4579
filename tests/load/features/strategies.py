"""A group that stays as it is: members on all nodes, clean and durable, with MQTT 5 and 3.1.1, which answer at once.
Its publishers have several topics, at each QoS; one publishes by both nodes, one after the other.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from load import habits
from load.feature import Feature
from load.player import CLEAN, CLEAN_311, DURABLE, DURABLE_311
from load.sending import Publication
from load.subscribing import Wish

MEMBERS: Final = (CLEAN, CLEAN, CLEAN_311, DURABLE, DURABLE_311)
PUBLISHERS: Final = (CLEAN, DURABLE, CLEAN_311)
QOS: Final = (1, 2, 0)
TOPICS: Final = 3


def play(feature: Feature) -> None:
    wishes = [Wish(f"$share/steady/{feature.root}/#")]
    for i, terms in enumerate(MEMBERS):
        feature.counts(feature.player(f"member{i}", terms, wishes))
    for i, terms in enumerate(PUBLISHERS):
        publisher = feature.player(f"pub{i}", terms)
        publication = partial(_publication, feature.root)
        feature.act(habits.publish, publisher, feature.rate / len(PUBLISHERS), publication)
    feature.act(habits.rove, feature.players[-1])


def _publication(root: str, number: int) -> Publication:
    """All publish to the same topics."""
    turn, which = divmod(number, len(QOS))
    return Publication(f"{root}/{turn % TOPICS}/{QOS[which]}", QOS[which], has_properties=True)
