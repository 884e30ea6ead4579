"""The clients of one chapter of a run: the players of each feature of a profile, from their coming to their leaving."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from load import looks
from load.feature import Feature
from load.player import Player
from load.profiles import PROFILES, made
from load.stage import Stage
from load.waiting import until

QUIET_S: Final = 1.0
LATE_LOOK_S: Final = 2.0
CONNECT_MAX_S: Final = 30.0
SESSIONS: Final = ("clean", "durable")


def _forever(_: float) -> bool:
    return True


class Load:
    """One chapter's clients. `rate`: messages a second, of which each feature publishes its share; `sessions`,
    `churners`: of the base; `at_least`: so many messages are acknowledged before they fall silent."""

    def __init__(
        self,
        stage: Stage,
        chapter: int,
        profile: str,
        rate: float,
        *,
        sessions: Sequence[str] = SESSIONS,
        churners: int = 1,
        at_least: int = 0,
    ) -> None:
        self._stage = stage
        self._at_least = at_least
        self._chapter = chapter
        self.features = [
            made(Feature(stage, name, chapter, share * rate), tuple(sessions), churners)
            for name, share in PROFILES[profile].items()
        ]
        self.players: list[Player] = [player for feature in self.features for player in feature.players]
        self._running: list[asyncio.Task[None]] = []
        self._acts: list[asyncio.Task[None]] = []

    @property
    def acknowledged(self) -> int:
        return sum(player.sending.acknowledged for player in self.players)

    @property
    def deliveries(self) -> int:
        return sum(player.taking.deliveries for player in self.players)

    async def start(self) -> None:
        """Returns when all are there, and play."""
        self._running = [asyncio.create_task(player.run()) for player in self.players]
        await until(lambda: all(player.is_settled for player in self.players))
        self._acts = [asyncio.create_task(act()) for feature in self.features for act in feature.acts]

    async def until_connected(self) -> None:
        """Who isn't away. Raises TimeoutError."""
        async with asyncio.timeout(CONNECT_MAX_S):
            await until(lambda: all(player.link is not None or player.is_away for player in self.players))

    async def settle(
        self, patience_s: float, since: float | None = None, is_anything_missing: Callable[[float], bool] = _forever
    ) -> list[str]:
        """When the last fault is over: go on until each feature has come once more to what it is there for, and enough
        is acknowledged, then fall silent; returns when everything published is acknowledged, and what is to come has
        come. None of the three takes longer than `patience_s`. What is returned is who still waits for an answer then.
        Played is written down for the time `since` then, or since this was called. `is_anything_missing(at)`: whether
        something that hasn't come yet would be lost if it hasn't come at that time."""
        since = self._stage.now() if since is None else since
        await _within(patience_s, until(lambda: self._is_enough(since)))
        for feature in self.features:
            self._stage.record(feature.played(since))
        await _cancelled(self._acts)
        await _within(patience_s, *(act() for feature in self.features for act in feature.mend))
        for player in self.players:
            player.settle()
        await _within(patience_s, until(lambda: all(player.is_settled for player in self.players)))
        unsettled = [player.name for player in self.players if not player.is_settled]
        await self._until_nothing_is_late(is_anything_missing)
        await self._until_silent()
        if any(feature.retains for feature in self.features):
            await _within(patience_s, looks.retained(self._stage, self._chapter))
        return unsettled

    def _is_enough(self, since: float) -> bool:
        return self.acknowledged >= self._at_least and all(feature.times_since(since) for feature in self.features)

    async def _until_nothing_is_late(self, is_anything_missing: Callable[[float], bool]) -> None:
        twice_s, lost_s = (max(late_s) for late_s in zip(*(feature.late_s for feature in self.features), strict=True))
        lost_at = self._stage.now() + lost_s
        await asyncio.sleep(twice_s)
        while self._stage.now() < lost_at and is_anything_missing(lost_at):  # noqa: ASYNC110 - judged, no event
            await asyncio.sleep(LATE_LOOK_S)

    async def _until_silent(self) -> None:
        heard = -1
        while heard != self.deliveries:
            heard = self.deliveries
            await asyncio.sleep(QUIET_S)

    async def leave(self, patience_s: float) -> None:
        await _cancelled([*self._acts, *self._running])
        await _within(patience_s, *(player.leave() for player in self.players))


async def _within(patience_s: float, *doing: Coroutine[Any, Any, None]) -> None:
    """As far as they come."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            await asyncio.gather(*doing)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Raises what one of them raised."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
