"""Simulated time, and processes that stop, go on and die in it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import gc
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from simulation.loop import ASK_AGAIN_S, STARTS_AT_S, Process, SimulatedLoop, current

Noted = list[tuple[float, str]]


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    made = SimulatedLoop()
    yield made
    made.set_exception_handler(lambda *_: None)  # that killed tasks are destroyed unfinished is no news


@pytest.fixture
def node() -> Process:
    return Process("node")


@pytest.fixture
def noted() -> Noted:
    return []


@pytest.fixture
def note(loop: SimulatedLoop, noted: Noted) -> Callable[[str], None]:
    """Write down what happened, and when since the start."""
    return lambda what: noted.append((round(loop.time() - STARTS_AT_S, 6), what))


def pass_time(loop: SimulatedLoop, seconds: float) -> None:
    loop.run(asyncio.sleep(seconds), Process("observer"))


# --- time -------------------------------------------------------------------------------------------------------------


def test_what_is_due_at_the_same_time_runs_in_the_order_in_which_it_was_asked_for(loop: SimulatedLoop) -> None:
    ran: list[int] = []
    cancelled = [loop.call_later(1.0 - number / 100, ran.append, -1) for number in range(50)]
    for number in range(100):
        if number % 2:
            loop.call_later(1.0, ran.append, number)
        else:
            loop.call_at(STARTS_AT_S + 1.0, ran.append, number)
    for step in cancelled:
        step.cancel()
    pass_time(loop, 2.0)
    assert ran == list(range(100))


def test_time_passes_only_while_nothing_is_ready(
    loop: SimulatedLoop, noted: Noted, note: Callable[[str], None]
) -> None:
    def again(left: int) -> None:
        note("soon")
        if left:
            loop.call_soon(again, left - 1)

    loop.call_later(1e-9, note, "later")
    again(100)
    pass_time(loop, 1.0)
    assert noted == [*101 * [(0.0, "soon")], (0.0, "later")]


def test_time_goes_to_whatever_is_next_and_never_back(
    loop: SimulatedLoop, noted: Noted, note: Callable[[str], None]
) -> None:
    loop.call_later(3600.0, note, "in an hour")
    loop.call_later(0.5, note, "in a moment")
    loop.call_later(5.0, loop.call_at, STARTS_AT_S, note, "too late")
    pass_time(loop, 7200.0)
    assert noted == [(0.5, "in a moment"), (5.0, "too late"), (3600.0, "in an hour")]
    assert loop.time() == STARTS_AT_S + 7200.0


def test_what_is_cancelled_neither_runs_nor_takes_time(loop: SimulatedLoop, noted: Noted) -> None:
    step = loop.call_later(60.0, noted.append, (0.0, "never"))
    soon = loop.call_soon(noted.append, (0.0, "never"))
    step.cancel()
    soon.cancel()
    assert step.cancelled()
    assert soon.cancelled()
    pass_time(loop, 1.0)
    assert loop.time() == STARTS_AT_S + 1.0
    assert noted == []


def test_a_loop_in_which_nothing_will_ever_happen_says_so(loop: SimulatedLoop, node: Process) -> None:
    with pytest.raises(RuntimeError, match="nothing will ever happen"):
        loop.run(_forever(), node)


def test_work_that_is_run_belongs_to_its_process(loop: SimulatedLoop, node: Process) -> None:
    async def work() -> list[Process | None]:
        later = loop.create_future()
        loop.call_later(1.0, lambda: later.set_result(current.get()))
        return [current.get(), await asyncio.create_task(_whose()), await later]

    assert loop.run(work(), node) == [node, node, node]
    assert current.get() is None


def test_what_is_asked_for_in_an_empty_context_is_nobodys(loop: SimulatedLoop, node: Process) -> None:
    whose: list[Process | None] = []

    def ask() -> None:
        for ask_for in (loop.call_soon, functools.partial(loop.call_later, 1.0)):
            ask_for(lambda: whose.append(current.get()), context=contextvars.Context())

    node.context.run(ask)
    pass_time(loop, 2.0)
    assert whose == [None, None]


# --- processes --------------------------------------------------------------------------------------------------------


def test_what_is_due_while_a_process_stands_still_comes_late_and_in_order(
    loop: SimulatedLoop, node: Process, noted: Noted, note: Callable[[str], None]
) -> None:
    for seconds in (3, 1, 2, 6):
        loop.call_later(seconds, note, f"{seconds}", context=node.context)
    loop.call_later(2, note, "another's", context=Process("other").context)
    node.stop()
    pass_time(loop, 5.0)
    assert noted == [(2.0, "another's")]
    node.go_on()
    pass_time(loop, 5.0)
    assert noted[1:] == [(5.0, "1"), (5.0, "2"), (5.0, "3"), (6.0, "6")]


def test_a_process_that_was_stopped_and_killed_does_nothing_when_it_is_told_to_go_on(
    loop: SimulatedLoop, node: Process, noted: Noted, note: Callable[[str], None]
) -> None:
    for seconds in (1.0, 3.0):
        loop.call_later(seconds, note, "never", context=node.context)
    node.stop()
    pass_time(loop, 2.0)
    node.kill()
    node.stop()
    node.go_on()
    pass_time(loop, 2.0)
    assert noted == []


def test_each_iteration_of_a_strained_process_takes_its_time(
    loop: SimulatedLoop, node: Process, noted: Noted, note: Callable[[str], None]
) -> None:
    async def steps() -> None:
        for number in range(3):
            note(f"{number}")
            await asyncio.sleep(0)

    node.strain(0.5)
    loop.create_task(steps(), context=node.context)
    loop.call_later(0.1, note, "beside it", context=node.context)
    loop.call_later(0.1, note, "another's", context=Process("other").context)
    pass_time(loop, 5.0)
    assert noted == [(0.1, "another's"), (0.5, "0"), (0.5, "beside it"), (1.0, "1"), (1.5, "2")]
    node.strain(0.0)
    loop.call_soon(note, "at once", context=node.context)
    pass_time(loop, 1.0)
    assert noted[-1] == (5.0, "at once")


def test_a_strained_process_stands_still_and_goes_on_in_order(
    loop: SimulatedLoop, node: Process, noted: Noted, note: Callable[[str], None]
) -> None:
    node.strain(0.5)
    for seconds in (0.1, 0.2, 2.0):
        loop.call_later(seconds, note, f"{seconds}", context=node.context)
    pass_time(loop, 0.3)
    node.stop()
    assert not node.answers
    pass_time(loop, 4.0)
    assert noted == []
    node.go_on()
    assert node.answers
    pass_time(loop, 1.0)
    assert noted == [(4.8, "0.1"), (4.8, "0.2"), (4.8, "2.0")]


def test_of_a_strained_process_that_is_killed_amid_an_iteration_no_more_runs(
    loop: SimulatedLoop, node: Process, noted: Noted, note: Callable[[str], None]
) -> None:
    node.strain(0.5)
    loop.call_soon(note, "before", context=node.context)
    loop.call_soon(node.kill, context=node.context)
    loop.call_soon(note, "never", context=node.context)
    pass_time(loop, 2.0)
    assert noted == [(0.5, "before")]


def test_not_a_line_of_a_killed_process_runs(
    loop: SimulatedLoop, node: Process, noted: Noted, note: Callable[[str], None]
) -> None:
    async def cleans_up(what: Coroutine[Any, Any, Any]) -> None:
        with _noting(note):
            try:
                await what
            except asyncio.CancelledError:
                note("cancelled")
            finally:
                note("finally")

    async def work() -> None:
        children = [asyncio.create_task(cleans_up(_forever())), asyncio.create_task(cleans_up(asyncio.sleep(1.0)))]
        await cleans_up(asyncio.wait(children))

    loop.create_task(work(), context=node.context)
    loop.call_later(1.0, note, "timer", context=node.context)
    loop.call_later(1.0, note, "another's", context=Process("other").context)
    pass_time(loop, 0.5)
    loop.bury()
    node.kill()
    gc.collect()
    pass_time(loop, 10.0)
    gc.collect()
    assert noted == [(1.0, "another's")]


def test_a_process_that_is_started_again_is_another_one(
    loop: SimulatedLoop, noted: Noted, note: Callable[[str], None]
) -> None:
    for life in ("first", "second"):
        process = Process("node")
        loop.call_later(1.0, note, life, context=process.context)
        pass_time(loop, 0.9)
        if life == "first":
            process.kill()
    pass_time(loop, 1.0)
    assert noted == [(1.9, "second")]


# --- threads ----------------------------------------------------------------------------------------------------------


def test_a_threads_work_is_done_as_much_later_as_it_takes(
    loop: SimulatedLoop, node: Process, noted: Noted, note: Callable[[str], None]
) -> None:
    node.thread_s = lambda: 0.25

    async def work() -> None:
        done = loop.run_in_executor(None, note, "thread")
        note("asked")
        await done
        with pytest.raises(ValueError, match="base 10"):
            await loop.run_in_executor(None, int, "no number")

    loop.run(work(), node)
    assert noted == [(0.0, "asked"), (0.25, "thread")]
    assert loop.time() == STARTS_AT_S + 0.5


def test_a_thread_that_is_held_up_is_done_when_it_is_let_go(
    loop: SimulatedLoop, node: Process, noted: Noted, note: Callable[[str], None]
) -> None:
    held = [True]
    node.thread_s = lambda: None if held[0] else 0.0
    task = loop.create_task(asyncio.to_thread(note, "thread"), context=node.context)
    pass_time(loop, 60.0)
    assert noted == []
    held[0] = False
    pass_time(loop, 2 * ASK_AGAIN_S)
    assert task.done()
    assert len(noted) == 1


@pytest.mark.parametrize("how", ["killed", "cancelled"])
def test_a_thread_that_nobody_waits_for_any_more_does_nothing(
    loop: SimulatedLoop, node: Process, noted: Noted, note: Callable[[str], None], how: str
) -> None:
    node.thread_s = lambda: 1.0
    task = loop.create_task(asyncio.to_thread(note, "thread"), context=node.context)
    pass_time(loop, 0.5)
    if how == "killed":
        loop.bury()
        node.kill()
    else:
        task.cancel()
    pass_time(loop, 5.0)
    assert noted == []


# --- what nobody caught -----------------------------------------------------------------------------------------------


def test_what_nobody_caught_reaches_the_exception_handler_in_its_process(loop: SimulatedLoop, node: Process) -> None:
    heard: list[tuple[Process | None, object]] = []
    loop.set_exception_handler(lambda _, context: heard.append((current.get(), context["exception"])))
    error = ValueError("nobody foresaw it")
    loop.call_later(1.0, _raise, error, context=node.context)
    loop.call_later(1.0, _raise, error)
    ran: list[bool] = []
    loop.call_later(1.0, ran.append, True, context=node.context)
    pass_time(loop, 2.0)
    assert heard == [(node, error), (None, error)]
    assert ran == [True]


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


async def _whose() -> Process | None:
    return current.get()


@contextlib.contextmanager
def _noting(note: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    finally:
        note("left")


def _raise(error: Exception) -> None:
    raise error
