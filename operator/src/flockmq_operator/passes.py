"""The loop around each object that is kept: wait for a reason, make one pass over all of it, look again in a while.

Level-triggered: a reason carries no information, so any number of them is one pass, and a lost one costs no more than
RESYNC_S, or SETTLED_RESYNC_S where all is as it should be (`settled` says what wakes a pass until then). One pass at a
time for each object, PASSES_MAX at a time in all, beside those that wait for a node's answer (`slots`). A pass that
fails is repeated with a growing delay, and nothing is remembered of it: the next one looks anew. Reasons are gathered
the longer the more passes in a row changed something: a rollout takes a few, and a quarrel with another controller over
a field is no busy loop.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from flockmq_operator.kube import Refused, Unreachable
from flockmq_operator.metrics import Metrics, Result
from flockmq_operator.slots import Slot

log = logging.getLogger(__name__)

RESYNC_S = 30.0
"""The longest an object is left unlooked at while it isn't as it should be."""
SETTLED_RESYNC_S = 300.0
"""The longest, where it is."""
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


def settled_resync_s() -> float:
    """SETTLED_RESYNC_S or less, by chance: objects that were all looked at when the operator started part."""
    return SETTLED_RESYNC_S * random.uniform(1 / 3, 1)  # noqa: S311 (nothing is kept secret by it)


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
        self._is_stopped = False

    def wake(self, key: Key) -> None:
        """There is a reason to look at it."""
        if self._is_stopped:
            return
        if key not in self._tasks:
            self._reasons[key] = asyncio.Event()
            self._tasks[key] = asyncio.create_task(self._keep(key), name=f"{self._what} {'/'.join(key)}")
        self._reasons[key].set()

    def wake_all(self, namespace: str | None) -> None:
        """There may be a reason to look at any of those that are being kept; `namespace` None: of all."""
        for key in list(self._tasks):
            if namespace in (None, key[0]):
                self.wake(key)

    def busy_with(self) -> set[Key]:
        """Whose are being kept."""
        return set(self._tasks)

    async def stop(self) -> None:
        """For good: whatever still has a reason wakes nothing."""
        self._is_stopped = True
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
        slot = Slot(self._slots)
        try:
            await slot.begin()
        finally:
            self._metrics.waiting -= 1
        result: Result = "failed"
        began_s = time.monotonic()
        try:
            done = await self._make(key)
            result = "changed" if done.changed else "unchanged"
        finally:
            slot.end()
            self._metrics.passed(result, time.monotonic() - began_s)
        return done

    async def _wait(self, key: Key, longest_s: float, gather_s: float) -> None:
        try:
            async with asyncio.timeout(longest_s):
                await self._reasons[key].wait()
            await asyncio.sleep(gather_s)
        except TimeoutError:
            pass
