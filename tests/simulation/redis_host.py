"""The host of one simulated Redis server: its process, which may be killed or stand still, and its connections."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from simulation.loop import Process, SimulatedLoop
from simulation.network import Address, End, Network
from simulation.redis.sentinel import Sentinel
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
    def __init__(self, name: str, at: Address, network: Network, rng: random.Random) -> None:
        self.name = name
        self.address = at[0]
        self.clock = WallClock(network.loop.time)
        self._at = at
        self._network = network
        self._loop: SimulatedLoop = network.loop
        self._saved: Saved = ()
        self._sentinel: Sentinel | None = None
        self._role: Callable[[RedisHost], None] | None = None
        self.process = Process(name, self.address)
        self.server = Server(name, at, ProcessTimers(self._loop, self.process), rng, self.clock.now_s)
        self.server.fsync_s = FSYNC_S
        self.server.crash()

    @property
    def is_running(self) -> bool:
        return self.server.is_running

    def have_sentinel(self, sentinel: Sentinel, role: Callable[[RedisHost], None]) -> None:
        """One runs here too. `role` says whom the server follows, when it starts again."""
        self._sentinel, self._role = sentinel, role
        self._network.listen(sentinel.address, self.process, self._accept_at_sentinel)

    async def start(self) -> None:
        self.start_now()

    def start_now(self) -> None:
        self.server.fsync_fails = False
        if self.server.is_running:
            return
        self._network.died(self.process)  # it may have ended by itself
        self.process = Process(self.name, self.address)
        self.server.timers = ProcessTimers(self._loop, self.process)
        self.server.start()
        self._network.listen(self._at, self.process, self._accept)
        if self._sentinel is not None and self._role is not None:
            self._sentinel.start()
            self._network.listen(self._sentinel.address, self.process, self._accept_at_sentinel)
            self._role(self)

    async def kill(self) -> None:
        self.server.crash()
        if self._sentinel is not None:
            self._sentinel.crash()
        self.process.kill()
        self._network.died(self.process)

    async def drain(self) -> None:
        """It has nothing to hand over that isn't on disk."""
        await self.kill()

    def pause(self) -> None:
        self.process.stop()

    def resume(self) -> None:
        self.process.go_on()

    def fill(self) -> None:
        self.server.used_part = 1.0

    def clear(self) -> None:
        self.server.used_part = 0.0

    def limit_memory(self, used_part: float) -> None:
        self.server.used_part = used_part

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

    def corrupt(self) -> None:
        """No fault does that to a Redis: it wouldn't start any more."""
        raise NotImplementedError

    def copy_data(self) -> None:
        self._saved = self.server.keep()

    def restore_copy(self) -> None:
        self.server.restore(self._saved)

    def empty(self) -> None:
        self.server.empty()

    def _accept_at_sentinel(self, end: End) -> None:
        assert self._sentinel is not None
        session = self._sentinel.connect()
        session.on_lost = end.close
        end.serve(lambda commands: session.execute(commands, end.send), session.close)

    def _accept(self, end: End) -> None:
        if not self.server.is_running:
            end.abort()
            return
        session = self.server.connect()
        session.on_lost = end.close
        end.serve(lambda commands: session.execute(commands, end.send), session.close)
