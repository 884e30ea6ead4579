"""Tasks that live as long as their node, and what happens when an error that nobody foresaw ends one.

If the task just ended, the node would stay linked and answer its probes, but not do its part: the worst way to fail. So
each task is of one of two kinds. A task that may begin again does, after the error is logged. A vital task may not,
because nobody knows in what state the error left it (it numbers writes, say, or commits them). So it ends the node, as
a crash would: the cluster is made for that, and who runs the node starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from flockmq import bounds

EXIT_CODE: Final = os.EX_SOFTWARE

log = logging.getLogger(__name__)


class VitalTaskFailed(Exception):
    """What the event loop's exception handler is given; its cause is the task's error."""


def begun_anew(work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
    """Do the work until it returns. After an error, which is logged, it begins again."""
    return asyncio.create_task(_begin_anew(work, name), name=name)


def vital(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Do work without which the node must not go on. An error in it goes to the loop's exception handler."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell_failure)
    return task


def end_process_on_failure(loop: asyncio.AbstractEventLoop) -> None:
    """End this process, without any of its `finally`s, when a vital task fails."""
    loop.set_exception_handler(_handle)


class Spawned:
    """What takes turns, and is waited for when its owner stops. An error in it is asyncio's to tell."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def done(self, within_s: float) -> bool:
        """Returns when all of it is done, or the time is over. False: there was nothing to wait for."""
        if not self._tasks:
            return False
        await asyncio.wait(self._tasks, timeout=within_s)
        return True


async def _begin_anew(work: Callable[[], Awaitable[None]], name: str) -> None:
    while True:
        try:
            await work()
            return
        except Exception:
            log.exception("%s failed, it begins anew", name)
            await asyncio.sleep(bounds.TASK_AGAIN_S)


def _tell_failure(task: asyncio.Task[None]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    vital_failed(task.get_name(), error)


def vital_failed(what: str, error: BaseException) -> None:
    """The same for vital work that is no task of its own: say it to the loop's exception handler."""
    failed = VitalTaskFailed(what)
    failed.__cause__ = error
    message = f"{what} failed, and the node can't go on without it"
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": failed})


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    loop.default_exception_handler(context)
    if isinstance(context.get("exception"), VitalTaskFailed):
        logging.shutdown()
        os._exit(EXIT_CODE)
