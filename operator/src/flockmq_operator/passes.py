"""The loop around each object that is kept: wait for a reason, make one pass over all of it, look again in a while.

Level-triggered: a reason carries no information, so any number of them is one pass, and a lost one costs no more than
RESYNC_S. One pass at a time for each object, PASSES_MAX at a time in all. A pass that fails is repeated with a growing
delay, and nothing is remembered of it: the next one looks anew. Reasons are gathered the longer the more passes in a
row changed something: a rollout takes a few, and a quarrel with another controller over a field is no busy loop.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from flockmq_operator.kube import Refused, Unreachable
from flockmq_operator.metrics import Metrics, Result

log = logging.getLogger(__name__)

RESYNC_S = 30.0
"""The longest an object is left unlooked at."""
GATHER_MIN_S = 0.25
"""How long reasons are gathered before a pass, at least: a rollout is hundreds of them."""
RETRY_MIN_S, RETRY_MAX_S = 1.0, 60.0
PASSES_MAX = 8
"""Passes at a time, of one kind."""

Key = tuple[str, str]
"""(namespace, name) of a MqttCluster."""


class Done(NamedTuple):
    """What came of a pass."""

    gone: bool = False
    """Whether there is nothing left to keep."""
    changed: bool = False
    look_again_s: float = RESYNC_S


class Passes:
    """`make` makes a pass over `what` of a MqttCluster; `forget` is called when there is nothing left to keep."""

    def __init__(
        self,
        what: str,
        make: Callable[[Key], Awaitable[Done]],
        forget: Callable[[Key], None],
        metrics: Metrics,
        gather_max_s: float,
    ) -> None:
        self._what = what
        self._make = make
        self._forget = forget
        self._metrics = metrics
        self._gather_max_s = gather_max_s
        self._reasons: dict[Key, asyncio.Event] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(PASSES_MAX)

    def wake(self, key: Key) -> None:
        """There is a reason to look at it."""
        if key not in self._tasks:
            self._reasons[key] = asyncio.Event()
            self._tasks[key] = asyncio.create_task(self._keep(key), name=f"{self._what} {'/'.join(key)}")
        self._reasons[key].set()

    def busy_with(self) -> set[Key]:
        """Whose are being kept."""
        return set(self._tasks)

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, key: Key) -> None:
        """Make passes until it is gone."""
        retry_s, gather_s = RETRY_MIN_S, GATHER_MIN_S
        try:
            while True:
                self._reasons[key].clear()
                try:
                    done = await self._measured(key)
                    if done.gone and not self._reasons[key].is_set():  # set: there may be a new one of this name
                        self._forget(key)
                        return
                    gather_s = min(gather_s * 2, self._gather_max_s) if done.changed else GATHER_MIN_S
                    retry_s = RETRY_MIN_S
                    await self._wait(key, done.look_again_s, gather_s)
                except Exception as error:
                    unexpected = None if isinstance(error, Unreachable | Refused) else error
                    told = f"a pass over {self._what} {'/'.join(key)} failed; trying again in {retry_s:.0f} s: {error}"
                    log.error(told, exc_info=unexpected)
                    await asyncio.sleep(retry_s)
                    retry_s = min(retry_s * 2, RETRY_MAX_S)
        finally:
            self._tasks.pop(key, None)
            self._reasons.pop(key, None)

    async def _measured(self, key: Key) -> Done:
        """A pass when there is room for it, counted."""
        self._metrics.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._metrics.waiting -= 1
        result: Result = "failed"
        began_s = time.monotonic()
        try:
            done = await self._make(key)
            result = "changed" if done.changed else "unchanged"
        finally:
            self._slots.release()
            self._metrics.passed(result, time.monotonic() - began_s)
        return done

    async def _wait(self, key: Key, longest_s: float, gather_s: float) -> None:
        try:
            async with asyncio.timeout(longest_s):
                await self._reasons[key].wait()
            await asyncio.sleep(gather_s)
        except TimeoutError:
            pass
