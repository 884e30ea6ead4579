"""Tasks that live as long as their node: what may begin anew does, what may not ends the node."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import Any

import pytest

from flockmq import bounds, tasks


async def test_what_may_begin_anew_outlives_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounds, "TASK_AGAIN_S", 0.0)
    errors = [ValueError("the first round")]
    again = asyncio.Event()

    async def work() -> None:
        if errors:
            raise errors.pop()
        again.set()
        await asyncio.Future()

    with caplog.at_level(logging.ERROR):
        task = tasks.restartable(work, "some work")
        await asyncio.wait_for(again.wait(), 10)
    task.cancel()
    assert "some work failed, it is started again" in caplog.text
    assert "ValueError: the first round" in caplog.text


async def test_what_may_begin_anew_ends_when_its_work_is_done() -> None:
    async def work() -> None: ...

    await asyncio.wait_for(tasks.restartable(work, "some work"), 10)


async def test_the_failure_of_a_vital_task_is_told_to_the_loop() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    async def work() -> None:
        raise ValueError("an odd reply")

    with pytest.raises(ValueError, match="an odd reply"):
        await tasks.vital(work(), "writer")
    await asyncio.sleep(0)
    (context,) = told
    assert context["message"] == "writer failed, and the node can't go on without it"
    assert isinstance(context["exception"], tasks.VitalTaskFailed)
    assert repr(context["exception"].__cause__) == repr(ValueError("an odd reply"))


async def test_a_vital_task_that_is_cancelled_or_done_is_no_failure() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    async def work() -> None: ...

    cancelled = tasks.vital(work(), "writer")
    cancelled.cancel()
    await asyncio.wait([cancelled, tasks.vital(work(), "writer")])
    await asyncio.sleep(0)
    assert not told


VITAL = """
import asyncio, sys
from flockmq import cli, tasks

async def fail():
    raise ValueError("an odd reply")

async def main():
    task = {start}
    try:
        await asyncio.sleep({seconds})
    finally:
        print("a finally ran")

sys.exit(cli._until_signalled(main))
"""


def test_the_failure_of_a_vital_task_ends_the_process_at_once_and_says_why() -> None:
    ended = _run(VITAL.format(start='tasks.vital(fail(), "writer")', seconds=60))
    assert ended.returncode == tasks.EXIT_CODE == 70
    assert "writer failed, and the node can't go on without it" in ended.stderr
    assert "ValueError: an odd reply" in ended.stderr
    assert "a finally ran" not in ended.stdout


def test_an_error_that_reaches_the_loop_otherwise_ends_nothing() -> None:
    ended = _run(VITAL.format(start="asyncio.get_running_loop().call_soon(lambda: 1 / 0)", seconds=0))
    assert "ZeroDivisionError" in ended.stderr
    assert "a finally ran" in ended.stdout
    assert ended.returncode == 0


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)


async def test_a_node_that_stops_waits_for_what_its_short_tasks_begin() -> None:
    spawned, ended = tasks.Spawned(), []

    async def last() -> None:
        await asyncio.sleep(0)
        ended.append("last")

    async def first() -> None:
        await asyncio.sleep(0)
        spawned.spawn(last())

    spawned.spawn(first())
    assert await spawned.done(60.0)
    assert ended == ["last"]
    assert not await spawned.done(60.0)


async def test_it_waits_for_them_no_longer_than_it_may() -> None:
    spawned = tasks.Spawned()
    never = asyncio.Event()

    async def wait() -> None:
        await never.wait()

    spawned.spawn(wait())
    assert await spawned.done(0.0)
    never.set()
    assert await spawned.done(60.0)
