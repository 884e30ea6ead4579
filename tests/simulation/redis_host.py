"""The host of one simulated Redis server: its process, which may be killed or stand still, and its place on the network."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from simulation.redis.server import Saved, Server

from simulation.loop import Process, SimulatedLoop
from simulation.network import Address, End, Network
from simulation.node import EPOCH_S

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
        self.clock_off_s = 0.0
        self._at = at
        self._network = network
        self._loop: SimulatedLoop = network.loop
        self._unwell = unwell
        self._saved: Saved = ()
        self.process = Process(name, self.address)
        self.server = Server(name, at, ProcessTimers(self._loop, self.process), rng, self._now_s)
        self.server.fsync_s = FSYNC_S
        self.server.crash()

    @property
    def is_running(self) -> bool:
        return self.server.is_running

    async def start(self) -> None:
        if self.server.is_running:
            return
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

    def shift_clock(self, seconds: float) -> None:
        self.clock_off_s = seconds

    def copy_data(self) -> None:
        self._saved = self.server.keep()

    def restore_copy(self) -> None:
        self.server.restore(self._saved)

    def empty(self) -> None:
        self.server.empty()

    def _accept(self, end: End) -> None:
        session = self.server.connect()
        session.on_lost = end.close
        end.serve(lambda commands: session.execute(commands, end.send), session.close)

    def _now_s(self) -> float:
        return EPOCH_S + self._loop.time() + self.clock_off_s
