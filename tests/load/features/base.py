"""The base of every load: publishers at each QoS and version, with durable sessions and clean ones, and subscribers
of each habit, to all of their messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from load import habits
from load.feature import Feature
from load.player import CLEAN, CLEAN_311, DURABLE, DURABLE_311, Player, Terms
from load.sending import Publication
from load.subscribing import Wish

PUBLISHERS: Final = 3
TOPICS: Final = 2
"""Of each publisher and QoS."""
QOS: Final = (1, 2, 1, 2, 0)
"""Of a publisher's messages, in turn."""
OWN_FILTERS: Final = 4
"""Of a churner, that nobody else has: most of its changes change routes."""
TERMS: Final = {"clean": (CLEAN, CLEAN_311), "durable": (DURABLE, DURABLE_311)}
"""The versions take turns."""
SHARES: Final = {"clean": 1, "durable": 2}
"""Of the messages."""


def play(feature: Feature, sessions: Sequence[str] = ("clean", "durable"), churners: int = 1) -> None:
    for kind in sessions:
        terms, share = TERMS[kind], SHARES[kind] / sum(SHARES[each] for each in sessions)
        rate = feature.rate * share / PUBLISHERS
        for i in range(PUBLISHERS):
            publisher = feature.player(f"{kind}-pub{i}", terms[i % 2])
            feature.act(habits.publish, publisher, rate, publications(f"{feature.root}/{publisher.name}"))
        subscribe(feature, kind, terms, churners)


def publications(root: str, qos: Sequence[int] = QOS) -> Callable[[int], Publication]:
    """To a few topics at each QoS."""

    def publication(number: int) -> Publication:
        turn, which = divmod(number, len(qos))
        return Publication(f"{root}/{qos[which]}/{turn % TOPICS}", qos[which])

    return publication


def subscribe(feature: Feature, kind: str, terms: tuple[Terms, Terms], churners: int) -> None:
    root = feature.root

    def player(name: str, terms: Terms, *wishes: Wish) -> Player:
        made = feature.player(f"{kind}-{name}", terms, wishes)
        feature.counts(made)
        return made

    player("all", terms[0], Wish(f"{root}/#"))
    player("one", terms[1], Wish(f"{root}/+/1/+", 1))
    feature.act(habits.rove, player("roves", terms[0], Wish(f"{root}/+/2/+")))
    for i in range(churners):
        wishes = [Wish(f"{root}/+/1/{i % TOPICS}", 1), Wish(f"{root}/+/2/{i % TOPICS}")]
        wishes += [Wish(f"own/{feature.root}/{kind}/{i}/{j}", 1) for j in range(OWN_FILTERS)]
        feature.act(habits.churn, player(f"churns{i}", terms[i % 2], *wishes))
