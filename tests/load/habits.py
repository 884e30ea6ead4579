"""What clients do again and again, each until it is cancelled: publish, change subscriptions, move, go away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from load.player import Player
from load.sending import Publication
from load.waiting import until

BACKLOG_MAX_S: Final = 10.0
"""What a publisher would have sent in so many seconds it sends as soon as it may, if something held it up."""
CHURN_S: Final = (0.2, 2.0)
ROVE_S: Final = (2.0, 6.0)

SELDOM: Final = (0.5, 1.5)
"""Of the mean: by chance alone what is seldom would be away for a multiple of it at times."""

Range = tuple[float, float]
"""Of seconds, to draw from."""


async def publish(
    player: Player, rate: float, publication: Callable[[int], Publication], *, steadily: bool = False
) -> None:
    """`publication(n)` is what the nth is; `rate` a second, by chance or steadily."""
    dice, now = player.stage.random, player.stage.now
    due = now()
    number = 0
    while True:
        await asyncio.sleep(due - now())
        await player.sending.room()
        number += 1
        player.sending.publish(publication(number))
        due += 1 / rate if steadily else dice.expovariate(rate)
        due = max(due, now() - BACKLOG_MAX_S)


async def seldom(player: Player, rate: float, do: Callable[[], Awaitable[None]]) -> None:
    """So often a second, evenly; the first time may be at once."""
    dice = player.stage.random
    await asyncio.sleep(dice.random() / rate)
    while True:
        await do()
        await asyncio.sleep(dice.uniform(*SELDOM) / rate)


async def churn(player: Player, every_s: Range = CHURN_S) -> None:
    """Want another half of all its filters."""
    dice = player.stage.random
    while True:
        filters = player.subscribing.filters
        player.subscribing.want(dice.sample(filters, (len(filters) + 1) // 2))
        await asyncio.sleep(dice.uniform(*every_s))


async def rove(player: Player, every_s: Range = ROVE_S) -> None:
    """Come to another node while the older connection is still open."""
    while True:
        await asyncio.sleep(player.stage.random.uniform(*every_s))
        if player.link is not None and len(player.stage.nodes()) > 1:
            await player.connect(anew=True)


async def be_cut_off(player: Player, every_s: Range) -> None:
    """Lose the connection, and come back."""
    while True:
        await asyncio.sleep(player.stage.random.uniform(*every_s))
        player.drop()


async def leave_and_return(player: Player, here_s: Range, away_s: Range) -> None:
    dice = player.stage.random
    while True:
        await asyncio.sleep(dice.uniform(*here_s))
        go(player)
        await asyncio.sleep(dice.uniform(*away_s))
        player.come_back()


def go(player: Player) -> None:
    """In order, or lost; and stay away."""
    player.stay_away()
    if player.stage.random.random() < 0.5:
        player.drop()
    else:
        player.disconnect()


async def move(player: Player) -> None:
    """Go, and come back to another node."""
    go(player)
    await until(lambda: player.link is None)
    nodes = player.stage.nodes()
    await player.reach(*([node for node in nodes if node.name != player.node] or nodes))
    player.come_back()
