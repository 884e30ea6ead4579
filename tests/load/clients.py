"""The clients of one chapter of a campaign: publishers, and subscribers of each habit, with sessions of each kind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from load.player import Stage
from load.publisher import TOPICS, Publisher
from load.subscriber import Subscriber

QUIET_S: Final = 1.0
POLL_S: Final = 0.05
CONNECT_MAX_S: Final = 30.0
OWN_FILTERS: Final = 4
"""Of a churner, that nobody else has: most of its changes change routes."""


class Load:
    """One chapter's clients."""

    def __init__(self, stage: Stage, chapter: int, sessions: str, rate: float, churners: int) -> None:
        kinds = [lasts for lasts, name in ((False, "clean"), (True, "durable")) if sessions in (name, "both")]
        root = f"load{chapter}"  # what comes late by a node that stood still comes to nobody of the next chapter
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        for lasts in kinds:
            prefix = f"{chapter}-{'durable' if lasts else 'clean'}"
            each = rate / len(kinds) / 3
            self.publishers += [
                Publisher(stage, f"{prefix}-pub{i}", lasts=lasts, rate=each, root=root) for i in range(3)
            ]
            self.subscribers += [
                Subscriber(stage, f"{prefix}-all", [(f"{root}/#", 2)], lasts=lasts),
                Subscriber(stage, f"{prefix}-one", [(f"{root}/+/1/+", 1)], lasts=lasts),
                Subscriber(stage, f"{prefix}-roves", [(f"{root}/+/2/+", 2)], lasts=lasts, roves=True),
            ]
            for i in range(churners):
                filters = [(f"{root}/+/1/{i % TOPICS}", 1), (f"{root}/+/2/{i % TOPICS}", 2)]
                filters += [(f"own/{prefix}/{i}/{j}", 1) for j in range(OWN_FILTERS)]
                self.subscribers.append(Subscriber(stage, f"{prefix}-churns{i}", filters, lasts=lasts, churns=True))
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def acknowledged(self) -> int:
        return sum(publisher.acknowledged for publisher in self.publishers)

    @property
    def deliveries(self) -> int:
        return sum(subscriber.deliveries for subscriber in self.subscribers)

    async def start(self) -> None:
        """Returns when all subscribers are there."""
        self._tasks = [asyncio.create_task(player.run()) for player in (*self.subscribers, *self.publishers)]
        await _until(lambda: all(subscriber.is_settled or subscriber.churns for subscriber in self.subscribers))

    async def until_connected(self) -> None:
        """Raises TimeoutError."""
        async with asyncio.timeout(CONNECT_MAX_S):
            await _until(lambda: all(player.link is not None for player in (*self.subscribers, *self.publishers)))

    async def settle(self, patience_s: float) -> list[str]:
        """Returns when everything published is acknowledged, and what is to come has come; or so much later: who still
        waits for an answer then."""
        for subscriber in self.subscribers:
            subscriber.settle()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await asyncio.gather(*(publisher.stop() for publisher in self.publishers))
                await _until(lambda: all(subscriber.is_settled for subscriber in self.subscribers))
        unsettled = [player.name for player in (*self.subscribers, *self.publishers) if not player.is_settled]
        await self._until_silent()
        return unsettled

    async def _until_silent(self) -> None:
        heard = -1
        while heard != self.deliveries:
            heard = self.deliveries
            await asyncio.sleep(QUIET_S)

    async def leave(self, patience_s: float) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await asyncio.gather(*(player.leave() for player in (*self.subscribers, *self.publishers)))


async def _until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(POLL_S)
