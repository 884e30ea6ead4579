"""Flow windows: subscribers with a small Receive Maximum that take their time to answer, bursts that are larger than
their windows, and connections that end while a window is full.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from load import habits
from load.feature import Feature
from load.history import Delivered
from load.player import CLEAN, DURABLE, Player, Terms
from load.sending import Publication
from load.subscribing import Wish

BURST: Final = 12
HEADROOM: Final = 3.0
"""How much faster a subscriber answers than messages come, on the average."""
CUT_OFF_S: Final = (2.0, 5.0)
SLOW: Final = (("one", 1, DURABLE), ("four", 4, DURABLE), ("two", 2, CLEAN))
"""Their windows."""


def play(feature: Feature) -> None:
    publishers = [feature.player("pub0", DURABLE), feature.player("pub1", CLEAN)]
    for publisher in publishers:
        burst = partial(_burst, publisher, feature.root)
        feature.act(habits.seldom, publisher, feature.rate / len(publishers) / BURST, burst)
    for name, window, terms in SLOW:
        subscriber = _slow(feature, name, window, terms)
        if terms.lasts:
            feature.act(habits.be_cut_off, subscriber, CUT_OFF_S)


def _slow(feature: Feature, name: str, window: int, terms: Terms) -> Player:
    made = feature.player(name, terms._replace(receive_maximum=window), [Wish(f"{feature.root}/#")])
    made.taking.answers_after_s = window / (HEADROOM * feature.rate)

    def heard(_: Delivered) -> None:
        if made.taking.held + 1 >= window:
            feature.came()

    made.taking.heard = heard
    return made


async def _burst(publisher: Player, root: str) -> None:
    for number in range(BURST):
        await publisher.sending.room()
        publisher.sending.publish(Publication(f"{root}/{publisher.name}/{1 + number % 2}", 1 + number % 2))
