"""What a packet says beside topic and payload: all properties that nodes pass on, Message Expiry; and what a client
allows: few messages at once, small packets, topic aliases. Beside those who stay there are clients that leave, come
back with another limit, and leave without an answer to what came.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from load import habits
from load.feature import Feature
from load.history import KEPT, Delivered
from load.player import CLEAN, DURABLE, DURABLE_311, Player
from load.sending import Publication
from load.subscribing import Wish

QOS: Final = (1, 2, 0)
TOPICS: Final = 4
EXPIRY_S: Final = 60
LARGE_BYTES: Final = 4096
LARGE_EVERY: Final = 5
"""One message in so many is larger than some clients allow."""
SMALL: Final = LARGE_BYTES // 2
ALIASES: Final = 3
"""Fewer than there are topics."""
HERE_S: Final = (1.0, 3.0)
AWAY_S: Final = (0.3, 4.5)
ANSWERS_AFTER_S: Final = 0.05


def play(feature: Feature) -> None:
    for name, terms in (("durable", DURABLE), ("clean", CLEAN)):
        publisher = feature.player(f"pub-{name}", terms._replace(aliases=ALIASES))
        feature.act(habits.publish, publisher, feature.rate / 2, partial(_publication, f"{feature.root}/{name}"))
    wishes = [Wish(f"{feature.root}/#"), Wish(f"{feature.root}/+/1", 1, identifier=1)]
    for name, terms in (("durable", DURABLE), ("clean", CLEAN)):
        _counts(feature, feature.player(f"{name}-allows-aliases", terms._replace(aliases=ALIASES), wishes))
        _counts(feature, feature.player(f"{name}-allows-little", terms._replace(packet_max=SMALL), wishes))
    for name, terms in (("leaves", DURABLE._replace(aliases=ALIASES)), ("leaves-311", DURABLE_311)):
        leaves = feature.player(name, terms._replace(receive_maximum=2), wishes)
        leaves.taking.answers_after_s = ANSWERS_AFTER_S
        feature.act(habits.leave_and_return, leaves, HERE_S, AWAY_S)
    changes = feature.player("changes", DURABLE, wishes)
    changes.turns = DURABLE._replace(packet_max=SMALL, receive_maximum=1), DURABLE._replace(aliases=1)
    feature.act(habits.leave_and_return, changes, HERE_S, AWAY_S)


def _publication(root: str, number: int) -> Publication:
    size = LARGE_BYTES if number % LARGE_EVERY == 0 else 0
    expiry_s = EXPIRY_S if number % 2 else -1
    topic = f"{root}/{number % TOPICS}"
    return Publication(topic, QOS[number % len(QOS)], expiry_s=expiry_s, size=size, has_properties=number % 4 > 0)


def _counts(feature: Feature, player: Player) -> None:
    def heard(delivered: Delivered) -> None:
        if delivered.properties == KEPT:
            feature.came()

    player.taking.heard = heard
