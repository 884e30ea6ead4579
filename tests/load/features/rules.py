"""Bans and access rules that change while clients come, publish and subscribe: each change is made at some node, and
undone a while later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from load import habits
from load.feature import Feature
from load.history import Banned, ChangeAsked, RulesChanged
from load.player import CLEAN, LASTING, RETRY_S, Player
from load.sending import Letter
from load.stage import Admin, AdminFailed
from load.subscribing import Wish
from load.waiting import holds_within

PREFIXES: Final = 2
HOLDS_S: Final = (0.5, 2.0)
FELT_MAX_S: Final = 3.0
"""How long it is waited for that somebody feels a change."""


def play(feature: Feature) -> None:
    if feature.stage.admin is None:
        raise ValueError("the feature `rules` needs a stage with an admin")
    admin = feature.stage.admin
    for i in range(PREFIXES):
        prefix = f"{feature.root}/{i}"
        publisher = feature.player(f"pub{i}", (LASTING, CLEAN)[i % 2])
        feature.act(habits.publish, publisher, feature.rate / PREFIXES, partial(_letter, prefix))
        feature.player(f"stays{i}", LASTING, [Wish(f"{prefix}/#")])
        feature.act(habits.churn, feature.player(f"asks{i}", CLEAN, [Wish(f"{prefix}/#"), Wish(f"{prefix}/+", 1)]))
        feature.act(_deny_at_times, feature, admin, prefix, publisher)
        feature.mend.append(partial(_allow, feature, admin, prefix))
    for name, terms in (("durable", LASTING), ("clean", CLEAN)):
        banned = feature.player(f"{name}-is-banned", terms, [Wish(f"{feature.root}/#")])
        feature.act(_ban_at_times, feature, admin, banned)
        feature.mend.append(partial(_lift, feature, admin, banned))


def _letter(prefix: str, number: int) -> Letter:
    return Letter(f"{prefix}/{1 + number % 2}", 1 + number % 2)


async def _deny_at_times(feature: Feature, admin: Admin, prefix: str, publisher: Player) -> None:
    dice, stage, sending = feature.stage.random, feature.stage, publisher.sending
    while True:
        await asyncio.sleep(dice.uniform(*HOLDS_S))
        await _done(feature, "deny", admin.deny, prefix)
        stage.record(RulesChanged(stage.now(), prefix, is_denied=True))
        refused = sending.refused
        is_felt = await holds_within(FELT_MAX_S, lambda: sending.refused > refused)  # noqa: B023 - waited for here
        await asyncio.sleep(dice.uniform(*HOLDS_S))
        await _allow(feature, admin, prefix)
        acknowledged = sending.acknowledged
        if is_felt and await holds_within(FELT_MAX_S, lambda: sending.acknowledged > acknowledged):  # noqa: B023
            feature.came()


async def _ban_at_times(feature: Feature, admin: Admin, player: Player) -> None:
    dice, stage = feature.stage.random, feature.stage
    while True:
        await asyncio.sleep(dice.uniform(*HOLDS_S))
        await _done(feature, "ban", admin.ban, player.name)
        stage.record(Banned(stage.now(), player.name))
        is_felt = await holds_within(FELT_MAX_S, lambda: player.link is None)
        await asyncio.sleep(dice.uniform(*HOLDS_S))
        await _lift(feature, admin, player)
        if is_felt and await holds_within(FELT_MAX_S, lambda: player.link is not None):
            feature.came()


async def _allow(feature: Feature, admin: Admin, prefix: str) -> None:
    await _done(feature, "allow", admin.allow, prefix)
    feature.stage.record(RulesChanged(feature.stage.now(), prefix, is_denied=False))


async def _lift(feature: Feature, admin: Admin, player: Player) -> None:
    await _done(feature, "lift", admin.lift, player.name)
    feature.stage.record(Banned(feature.stage.now(), player.name, holds=False))


async def _done(feature: Feature, what: str, change: Callable[[str, str], Awaitable[None]], of: str) -> None:
    """At whatever node says yes."""
    stage = feature.stage
    while True:
        stage.record(ChangeAsked(stage.now(), what, of))
        try:
            return await change(stage.random.choice(stage.nodes()).name, of)
        except AdminFailed:
            await asyncio.sleep(RETRY_S)
