"""An asyncio event loop on simulated time: nothing waits, the clock jumps to whatever is next.

    loop = SimulatedLoop(); node = Process("core-1")
    loop.create_task(work(), context=node.context)        what runs there, and what that starts, belongs to the process
    node.stop(); …; node.go_on()                          SIGSTOP, SIGCONT: what is due meanwhile comes late
    node.strain(0.1)                                      each iteration of its event loop takes so long
    node.kill()                                           SIGKILL: not a line of its code runs any more, no `finally`

What always holds: what is due at the same time runs in the order in which it was asked for; time passes only while
nothing is ready; code takes no time, but where its process is strained.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import socket
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

STARTS_AT_S: Final = 1000.0
ASK_AGAIN_S: Final = 0.05
RUNNING: Final = 0
STOPPED: Final = 1
DEAD: Final = 2
STRAINED: Final = 3

current: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
"""Whose code runs; None: the simulator's own."""
log: Final = logging.getLogger(__name__)


class Process:
    """One life of one program; started again, it is another one. `address`: of the host that it runs on."""

    def __init__(self, name: str, address: str = "") -> None:
        self.name = name
        self.address = address
        self.state = RUNNING
        self.thread_s: Callable[[], float | None] = _at_once
        """How long a call in a thread takes; None: nobody knows yet, ask again."""
        self.context = contextvars.copy_context()
        self.context.run(current.set, self)
        self._held: list[tuple[SimulatedLoop, Step]] = []
        self._iteration_s = 0.0
        self._iterates = False

    def stop(self) -> None:
        if self.state != DEAD:
            self.state = STOPPED

    def go_on(self) -> None:
        if self.state != DEAD:
            self.state = STRAINED if self._iteration_s else RUNNING
        held, self._held = self._held, []
        for loop, step in held:
            loop.run_soon(step)

    def strain(self, iteration_s: float) -> None:
        """Each iteration of its event loop takes so long from now on: a `sleep(0)`, too."""
        self._iteration_s = iteration_s
        if self.state in (RUNNING, STRAINED):
            self.go_on()

    @property
    def answers(self) -> bool:
        """It lives, and doesn't stand still."""
        return self.state in (RUNNING, STRAINED)

    def kill(self) -> None:
        self.state = DEAD
        self._held.clear()

    def hold(self, loop: SimulatedLoop, step: Step) -> None:
        """It is due, but the process doesn't run, or is amid an iteration."""
        if self.state == DEAD:
            return
        self._held.append((loop, step))
        if self.state == STRAINED and not self._iterates:
            self._iterates = True
            loop.call_later(self._iteration_s, self._iterate, context=contextvars.Context())

    def _iterate(self) -> None:
        """What was due when the iteration ended is done; what that asks for belongs to the next one."""
        self._iterates = False
        if self.state != STRAINED:
            return  # `go_on` has what is held done.
        held, self._held = self._held, []
        for loop, step in held:
            if self.state == STRAINED:
                loop.do(step)
            else:
                self.hold(loop, step)


class Step(msgspec.Struct, eq=False, gc=False):
    """What is to be called, and when: what asyncio has as Handle and TimerHandle."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: contextvars.Context
    when_s: float
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback, self.args = _at_once, ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class SimulatedLoop(asyncio.BaseEventLoop):
    """`network` gives connections; without one there are none. `buried`: what killed processes did, which must not
    be collected: its `finally`s would run."""

    def __init__(self) -> None:
        super().__init__()
        self.network: Any = None
        self.buried: list[object] = []
        self._now = STARTS_AT_S
        self._next: deque[Step] = deque()
        self._timers: list[tuple[float, int, Step]] = []
        self._asked = 0
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self.get_debug = bool  # type: ignore[method-assign]  # each future asks: this says no, and quicker than a method

    def __del__(self, **_: Any) -> None:
        """It has nothing that would have to be closed."""

    def time(self) -> float:
        return self._now

    def bury(self) -> None:
        """Before processes are killed: keep what they do."""
        self.buried.append(asyncio.all_tasks(self))

    def run(self, work: Coroutine[Any, Any, T], process: Process) -> T:
        """To its end, as what the process does."""
        return self.run_until_complete(self.create_task(work, context=process.context))

    # asyncio's own.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Step:
        step = Step(callback, args, copy_context() if context is None else context, self._now)
        self._next.append(step)
        return step

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Step:
        step = Step(callback, args, copy_context() if context is None else context, when)
        self._asked = asked = self._asked + 1
        heappush(self._timers, (when, asked, step))
        return step

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Step:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def run_soon(self, step: Step) -> None:
        self._next.append(step)

    def do(self, step: Step) -> None:
        if step.is_cancelled:
            return
        try:
            step.context.run(step.callback, *step.args)
        except Exception as error:
            failed = {"message": f"{step.callback} failed", "exception": error}
            step.context.run(self.call_exception_handler, failed)

    def _run_once(self) -> None:
        """As often as there is something to do: asyncio looks only whether it is to stop."""
        with _everybody_is_told(self):
            self._run_until_stopped()

    def _run_until_stopped(self) -> None:
        timers, ready, pop = self._timers, self._next, heappop
        while not self._stopping:  # type: ignore[attr-defined]
            if not ready:
                while timers and timers[0][2].is_cancelled:
                    pop(timers)
                if not timers:
                    raise RuntimeError("nothing will ever happen any more")
                self._now = max(self._now, timers[0][0])
            now = self._now
            while timers and timers[0][0] <= now:
                ready.append(pop(timers)[2])
            for _ in range(len(ready)):
                step = ready.popleft()
                process = step.context.get(current)
                if process is None or process.state == RUNNING:
                    self.do(step)
                else:
                    process.hold(self, step)

    def _write_to_self(self) -> None:
        """There are no threads to wake it for."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """A thread's work is done at once, some time later."""
        future: asyncio.Future[T] = self.create_future()

        def begin() -> None:
            takes_s = 0.0 if process is None else process.thread_s()
            if takes_s is None:
                self.call_later(ASK_AGAIN_S, begin)
            else:
                self.call_later(takes_s, run)

        def run() -> None:
            if future.done():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        process = current.get()
        begin()
        return future

    def add_signal_handler(self, sig: int, callback: Any, *_: Any) -> None:  # type: ignore[override]
        """Nobody sends any."""

    def remove_signal_handler(self, sig: int) -> bool:
        return True

    # Connections.

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.network.connect(protocol_factory, (host, port))

    async def sock_accept(self, sock: Any) -> Any:
        return await sock.accept()

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_: Any) -> Any:
        return sock.accepted(protocol_factory)


def _at_once() -> float | None:
    return 0.0


@contextmanager
def _everybody_is_told(loop: SimulatedLoop) -> Iterator[None]:
    """Which loop runs. asyncio itself asks the kernel each time whether this is another process by now: one in twenty
    seconds of a simulation."""
    places = [(module, name) for module in (asyncio, events) for name in ("get_running_loop", "_get_running_loop")]
    before = [getattr(*place) for place in places]
    for place in places:
        setattr(*place, lambda: loop)
    try:
        yield
    finally:
        for place, was in zip(places, before, strict=True):
            setattr(*place, was)
