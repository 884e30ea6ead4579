"""Tasks that run as long as their node, and the handling of unexpected errors in them.

If such a task just ended, the node would keep its links and answer probes, but not do its work. That is the worst kind
of failure. So there are two kinds of tasks. A restartable task is started again, after the error is logged. A vital
task can't be, because its state after the error is unknown (for example, it numbers writes). Its failure
ends the process, like a crash: the cluster handles that, and the process's supervisor starts the node again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from flockmq import bounds

EXIT_CODE: Final = os.EX_SOFTWARE

log = logging.getLogger(__name__)


class VitalTaskFailed(Exception):
    """Passed to the event loop's exception handler. Its cause is the task's error."""


def restartable(work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
    """Run `work` until it returns. After an error, log it and start again."""
    return asyncio.create_task(_restart_on_error(work, name), name=name)


def vital(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Run a vital task. An error in it goes to the loop's exception handler."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_report_failure)
    return task


async def end(*running: asyncio.Task[Any] | None) -> None:
    """Cancel these tasks, and return when they have ended, whatever became of them."""
    ending = [task for task in running if task is not None]
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


def end_process_on_failure(loop: asyncio.AbstractEventLoop) -> None:
    """Make this process exit at once, without clean-up, when a vital task fails."""
    loop.set_exception_handler(_handle)


class Spawned:
    """Short tasks that their owner waits for when it stops. asyncio logs errors in them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def done(self, within_s: float) -> bool:
        """Wait until all tasks are done, those too that they begin, or the time is over. Returns False if there was no
        task."""
        if not self._running():
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while running := self._running():
                    await asyncio.wait(running)
        return True

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for task in self._tasks if not task.done()]


async def _restart_on_error(work: Callable[[], Awaitable[None]], name: str) -> None:
    while True:
        try:
            await work()
            return
        except Exception:
            log.exception("%s failed, it is started again", name)
            await asyncio.sleep(bounds.TASK_AGAIN_S)


def _report_failure(task: asyncio.Task[None]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    vital_failed(task.get_name(), error)


def vital_failed(what: str, error: BaseException) -> None:
    """Report the failure of vital work that isn't a task of its own to the loop's exception handler."""
    failed = VitalTaskFailed(what)
    failed.__cause__ = error
    message = f"{what} failed, and the node can't go on without it"
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": failed})


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    loop.default_exception_handler(context)
    if isinstance(context.get("exception"), VitalTaskFailed):
        logging.shutdown()
        os._exit(EXIT_CODE)
