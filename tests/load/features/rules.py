"""Bans and access rules that change while clients come, publish and subscribe: each change is made at some node, and
undone a while later. What is published may be due later, delayed or as a will, when it isn't allowed any more.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from judges.topics import is_unheard, is_unsaid, unheard, unsaid
from load import habits
from load.feature import Feature
from load.history import Banned, ChangeAsked, RulesChanged, Will
from load.player import CLEAN, DURABLE, DURABLE_311, RETRY_S, Player
from load.sending import Publication
from load.stage import AdminFailed, Stage
from load.subscribing import Wish
from load.waiting import holds_within

PREFIXES: Final = 3
"""At times one is denied, to one nobody may publish, and of one nobody may hear."""
QOS: Final = (1, 2, 0)
FREE_S: Final = (0.5, 2.0)
HOLDS_S: Final = (0.5, 4.5)
"""How long a change holds, and how long none does."""
STAYS_S: Final = (1.0, 4.0)
"""How long what it subscribes to stays."""
DEAD_S: Final = (4.5, 6.5)
DELAY_MAX_S: Final = 3
WILL_DELAY_S: Final = 4.0
"""Longer than a change of rules takes to every node."""
LATE_S: Final = 5.0
"""It isn't awaited that what is left by who is banned, or may not publish it, comes."""
UNDOES: Final = {"ban": "lift", "deny": "allow"}
FELT_MAX_S: Final = 3.0
"""How long it is waited for that somebody feels a change."""


def play(feature: Feature) -> None:
    operator = Operator(feature.stage)
    feature.late_s = LATE_S, LATE_S
    for i, prefix in enumerate((f"{feature.root}/0", unsaid(f"{feature.root}/1"), unheard(f"{feature.root}/2"))):
        publisher = feature.player(f"pub{i}", (DURABLE, CLEAN)[i % 2])
        feature.act(habits.publish, publisher, feature.rate / PREFIXES, partial(_publication, prefix))
        stays = feature.player(f"stays{i}", DURABLE, [Wish(f"{prefix}/#"), Wish(f"{prefix}/+", 1)])
        feature.act(habits.churn, stays, STAYS_S)  # what a rule ended it doesn't know
        feature.act(habits.churn, feature.player(f"asks{i}", CLEAN, [Wish(f"{prefix}/#"), Wish(f"{prefix}/+", 1)]))
        feature.act(_deny_at_times, feature, operator, prefix, publisher)
        delays = feature.player(f"delays{i}", (DURABLE_311, CLEAN)[i % 2])
        feature.act(habits.publish, delays, feature.rate / PREFIXES / 2, partial(_delayed, prefix))
        mortal = feature.player(f"dies{i}", DURABLE if is_unsaid(prefix) else CLEAN)
        mortal.will = Will(0, f"{prefix}/gone", 1, delay_s=WILL_DELAY_S)
        feature.act(_die, mortal)
    for name, terms in (("durable", DURABLE), ("clean", CLEAN)):
        banned = feature.player(f"{name}-is-banned", terms, [Wish(f"{feature.root}/#")])
        banned.will = Will(0, f"{feature.root}/gone/{name}", 1, delay_s=WILL_DELAY_S)
        feature.act(_ban_at_times, feature, operator, banned)
    feature.mend.append(operator.undo_all)


def _publication(prefix: str, number: int) -> Publication:
    qos = QOS[number % len(QOS)]
    return Publication(f"{prefix}/{qos}", qos)


def _delayed(prefix: str, number: int) -> Publication:
    return Publication(f"{prefix}/later", 1 + number % 2, delay_s=1 + number % DELAY_MAX_S)


async def _die(player: Player) -> None:
    """At times; its will is due, and then it comes back."""
    dice = player.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*STAYS_S))
        player.stay_away()
        player.drop()
        await asyncio.sleep(dice.uniform(*DEAD_S))
        player.come_back()


async def _deny_at_times(feature: Feature, operator: Operator, prefix: str, publisher: Player) -> None:
    dice, sending = feature.stage.random, publisher.sending
    while True:
        await asyncio.sleep(dice.uniform(*FREE_S))
        await operator.do("deny", prefix)
        refused = sending.refused
        is_felt = not is_unheard(prefix) and await holds_within(FELT_MAX_S, lambda: sending.refused > refused)  # noqa: B023 - waited for here
        await asyncio.sleep(dice.uniform(*HOLDS_S))
        await operator.do("allow", prefix)
        acknowledged = sending.acknowledged
        if is_felt and await holds_within(FELT_MAX_S, lambda: sending.acknowledged > acknowledged):  # noqa: B023
            feature.came()


async def _ban_at_times(feature: Feature, operator: Operator, player: Player) -> None:
    dice = feature.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*FREE_S))
        await operator.do("ban", player.name)
        is_felt = await holds_within(FELT_MAX_S, lambda: player.link is None)
        await asyncio.sleep(dice.uniform(*HOLDS_S))
        await operator.do("lift", player.name)
        if is_felt and await holds_within(FELT_MAX_S, lambda: player.link is not None):
            feature.came()


class Operator:
    """Changes what holds, at whatever node says yes, and knows what is to be undone."""

    def __init__(self, stage: Stage) -> None:
        if stage.admin is None:
            raise ValueError("the feature `rules` needs a stage with an admin")
        self._stage = stage
        self._ways = {
            "ban": stage.admin.ban,
            "lift": stage.admin.lift,
            "deny": stage.admin.deny,
            "allow": stage.admin.allow,
        }
        self._to_undo: dict[tuple[str, str], None] = {}

    async def do(self, what: str, of: str) -> None:
        stage = self._stage
        if what in UNDOES:
            self._to_undo[UNDOES[what], of] = None
        while True:
            stage.record(ChangeAsked(stage.now(), what, of))
            try:
                await self._ways[what](stage.random.choice(stage.nodes()).name, of)
                break
            except AdminFailed:
                await asyncio.sleep(RETRY_S)
        if what in ("ban", "lift"):
            stage.record(Banned(stage.now(), of, what == "ban"))
        else:
            stage.record(RulesChanged(stage.now(), of, what == "deny"))
        self._to_undo.pop((what, of), None)

    async def undo_all(self) -> None:
        for what, of in list(self._to_undo):
            await self.do(what, of)
