"""Shared subscriptions: a group whose members are on several nodes, clean and durable, come, leave and die, and one of
which is full because it answers nothing; beside it a durable subscriber of the same topics, and a group that refuses
because its only member is full. A publisher is cut off in the midst of some of QoS 2, and sends them again.

Who is full subscribes at QoS 1, and leaves at times, so that another member gets what it didn't answer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Final

from load import habits
from load.feature import Feature
from load.features.base import publications
from load.player import CLEAN, CLEAN_311, DURABLE, DURABLE_311, Player
from load.sending import WINDOW_MESSAGES, Publication
from load.subscribing import Wish

HERE_S: Final = (0.8, 2.5)
AWAY_S: Final = (0.2, 1.5)
MEMBERS: Final = (CLEAN, CLEAN_311, DURABLE, DURABLE_311)
CUT_SHARE: Final = 0.3
"""Of QoS 2 messages whose publisher is cut off behind them."""
CUT_TOGETHER_MAX: Final = 4
"""So many of them at once."""
STUCK_SHARE: Final = 0.5
"""Of the messages, to the group with one member."""
CROWD: Final = 3
STUCK_S: Final = (5.0, 10.0)
AWAKE_S: Final = 0.5
LATE_S: Final = (5.0, 11.0)
"""What waited for a member that is away, or is gone, comes in that time."""
TINY: Final = 1
"""The window of who is full."""


def play(feature: Feature) -> None:
    feature.late_s = LATE_S
    jobs = f"{feature.root}/jobs"
    member = Wish(f"$share/workers/{jobs}/#")
    for i, terms in enumerate(MEMBERS):
        worker = feature.player(f"stays{i}", terms, [member])
        feature.counts(worker)
        worker = feature.player(f"leaves{i}", terms, [member])
        feature.counts(worker)
        feature.act(habits.leave_and_return, worker, HERE_S, AWAY_S)
    feature.act(habits.churn, feature.player("changes", DURABLE, [member, Wish(f"{feature.root}/other", 1)]))
    feature.player("beside", DURABLE, [Wish(f"{jobs}/#")])
    feature.act(habits.leave_and_return, _full(feature, "full", jobs), HERE_S, AWAY_S)

    rate = feature.rate * (1 - STUCK_SHARE) / 2
    feature.act(_publish_and_be_cut_off, feature.player("is-cut-off", DURABLE), jobs, rate)
    steady = feature.player("pub", CLEAN)
    feature.act(habits.publish, steady, rate, publications(f"{jobs}/{steady.name}"))

    feature.act(_wake_at_times, _full(feature, "stuck", f"{feature.root}/stuck"))
    crowd = [feature.player(f"crowd{i}", DURABLE) for i in range(CROWD)]
    feature.act(_publish_all_at_once, crowd, f"{feature.root}/stuck/1", feature.rate * STUCK_SHARE)


def _full(feature: Feature, name: str, topics: str) -> Player:
    group = "workers" if name == "full" else name
    made = feature.player(name, CLEAN._replace(receive_maximum=TINY), [Wish(f"$share/{group}/{topics}/#", 1)])
    made.taking.answers_after_s = math.inf
    return made


async def _wake_at_times(player: Player) -> None:
    while True:
        await asyncio.sleep(player.stage.random.uniform(*STUCK_S))
        player.taking.settle()
        await asyncio.sleep(AWAKE_S)
        player.taking.answers_after_s = math.inf


async def _publish_all_at_once(players: Sequence[Player], topic: str, rate: float) -> None:
    """More than there may be room for, before anybody can be told to wait."""
    dice = players[0].stage.random
    while True:
        count = dice.randint(1, WINDOW_MESSAGES)
        await asyncio.sleep(dice.expovariate(rate / count / len(players)))
        for player in players:
            for _ in range(count):
                if player.sending.has_room:
                    player.sending.publish(Publication(topic))


async def _publish_and_be_cut_off(player: Player, root: str, rate: float) -> None:
    dice, number = player.stage.random, 0
    while True:
        await asyncio.sleep(dice.expovariate(rate))
        await player.sending.room()
        number += 1
        qos = 1 + number % 2
        publication = Publication(f"{root}/{player.name}/{qos}", qos)
        player.sending.publish(publication)
        if qos == 2 and dice.random() < CUT_SHARE:
            for _ in range(dice.randrange(CUT_TOGETHER_MAX)):
                if player.sending.has_room:
                    player.sending.publish(publication)
            await asyncio.sleep(dice.uniform(0.0, 0.01))
            player.drop()
