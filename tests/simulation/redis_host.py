"""The host of one simulated Redis server: its process, which may be killed or stand still, and its connections."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from simulation.loop import Process, SimulatedLoop
from simulation.network import Address, End, Network
from simulation.redis.server import Saved, Server
from simulation.wall_clock import WallClock

FSYNC_S: Final = 0.0003


class ProcessTimers:
    """A server's timers, which are its process'."""

    def __init__(self, loop: SimulatedLoop, process: Process) -> None:
        self._loop = loop
        self._context = process.context

    def call_soon(self, callback: Callable[..., object], *args: object) -> Any:
        return self._loop.call_soon(callback, *args, context=self._context)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Any:
        return self._loop.call_later(delay_s, callback, *args, context=self._context)


class RedisHost:
    def __init__(
        self, name: str, at: Address, network: Network, rng: random.Random, unwell: Callable[[str, str], None]
    ) -> None:
        self.name = name
        self.address = at[0]
        self.clock = WallClock(network.loop.time)
        self._at = at
        self._network = network
        self._loop: SimulatedLoop = network.loop
        self._unwell = unwell
        self._saved: Saved = ()
        self.process = Process(name, self.address)
        self.server = Server(name, at, ProcessTimers(self._loop, self.process), rng, self.clock.now_s)
        self.server.fsync_s = FSYNC_S
        self.server.crash()

    @property
    def is_running(self) -> bool:
        return self.server.is_running

    async def start(self) -> None:
        self.server.fsync_fails = False
        if self.server.is_running:
            return
        self._network.died(self.process)  # it may have ended by itself
        self.process = Process(self.name, self.address)
        self.server.timers = ProcessTimers(self._loop, self.process)
        self.server.start()
        self._network.listen(self._at, self.process, self._accept)

    async def kill(self) -> None:
        self.server.crash()
        self.process.kill()
        self._network.died(self.process)

    def pause(self) -> None:
        self.process.stop()

    def resume(self) -> None:
        self.process.go_on()

    def fill(self) -> None:
        self.server.is_full = True

    def clear(self) -> None:
        self.server.is_full = False

    def shift_clock(self, seconds: float, drift: float = 0.0) -> None:
        self.clock.shift(seconds, drift)

    def slow_down(self, delay_s: float) -> None:
        self._network.slow_down(self.address, delay_s)

    def lose(self, percent: float) -> None:
        self._network.lose(self.address, percent)

    def stall_disk(self, stalls: bool) -> None:
        self.server.fsync_stalls = stalls

    def fail_disk(self) -> None:
        self.server.fsync_fails = True

    def copy_data(self) -> None:
        self._saved = self.server.keep()

    def restore_copy(self) -> None:
        self.server.restore(self._saved)

    def empty(self) -> None:
        self.server.empty()

    def _accept(self, end: End) -> None:
        if not self.server.is_running:
            end.abort()
            return
        session = self.server.connect()
        session.on_lost = end.close
        end.serve(lambda commands: session.execute(commands, end.send), session.close)
