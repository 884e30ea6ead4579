"""Many runs of one started cluster: each is a fork of this process, so none knows of another.

What always holds: at most `jobs` run at once; a run that crashes or hangs is an outcome like any other; no garbage is
collected amid one.
"""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import selectors
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")
R = TypeVar("R")

READ_BYTES: Final = 1 << 16


class Failed(NamedTuple):
    """A run that gave no outcome: why. `kind`: of the exception, "" where there was none."""

    text: str
    kind: str = ""


class _Child(NamedTuple):
    pid: int
    pipe: int
    what: object
    until: float
    said: bytearray


def forked(work: Callable[[T], R], items: Iterable[T], jobs: int, timeout_s: float) -> Iterator[tuple[T, R | Failed]]:
    """`work` done for each item in a process of its own; outcomes as they come. `timeout_s` of real time for each."""
    waiting, running = iter(items), dict[int, _Child]()
    with selectors.DefaultSelector() as selector:
        try:
            while True:
                for item in itertools.islice(waiting, jobs - len(running)):
                    child = _start(work, item, timeout_s)
                    running[child.pipe] = child
                    selector.register(child.pipe, selectors.EVENT_READ)
                if not running:
                    return
                for pipe in _over(selector, running):
                    selector.unregister(pipe)
                    child = running.pop(pipe)
                    yield child.what, _outcome(child)  # type: ignore[misc]
        finally:
            for child in running.values():
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)


def _start(work: Callable[[T], R], item: T, timeout_s: float) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return _Child(pid, reading, item, time.monotonic() + timeout_s, bytearray())
    code = 1
    try:
        os.close(reading)
        gc.disable()  # it is over before its garbage matters, and when that goes isn't a matter of chance
        try:
            said: object = work(item)
        except BaseException as error:
            said = Failed(traceback.format_exc(), type(error).__name__)
        with os.fdopen(writing, "wb") as out:
            pickle.dump(said, out)
        code = 0
    finally:
        os._exit(code)


def _over(selector: selectors.BaseSelector, running: dict[int, _Child]) -> list[int]:
    """Whose pipe has ended, by itself or because its time is over."""
    over = []
    left_s = min(child.until for child in running.values()) - time.monotonic()
    for key, _ in selector.select(max(left_s, 0.0)):
        data = os.read(key.fd, READ_BYTES)
        running[key.fd].said.extend(data)
        if not data:
            over.append(key.fd)
    for pipe, child in running.items():
        if time.monotonic() > child.until and pipe not in over:
            os.kill(child.pid, signal.SIGKILL)
            over.append(pipe)
    return over


def _outcome(child: _Child) -> object:
    os.close(child.pipe)
    _, status = os.waitpid(child.pid, 0)
    try:
        return pickle.loads(child.said)
    except Exception:
        return Failed(f"ended with {os.waitstatus_to_exitcode(status)} and no outcome")
