"""One node of a simulation: real node code in a simulated process, which may crash and come back as often as it likes.

What outlives its processes: its address, its disk, and how wrong its wall clock is.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
from collections.abc import Callable
from typing import Any, Final

from flockmq.clock import Clock
from flockmq.config import load
from flockmq.entropy import Entropy
from flockmq.errors import UserError
from flockmq.membership.cluster_version import NEWEST
from flockmq.memory_limit import NodeMemory
from flockmq.node.assembly import Assembly, Machine, assemble
from flockmq.redis.connection import RedisConfig
from simulation.disk import SimulatedDisk
from simulation.loop import Process, SimulatedLoop
from simulation.network import Network
from simulation.reactor import SimulatedReactor
from simulation.wall_clock import WallClock

MQTT, LINK = 1883, 4370
RESTART_S: Final = (0.3, 3.0)
"""Between an end and the next start: longer each time, as Kubernetes waits."""
STEADY_S: Final = 30.0
THREAD_S: Final = (0.0001, 0.003)
"""How long a call in a thread takes."""
GRACE_S: Final = 20.0


class SimulatedNode:
    """`unwell(text)` hears of what must not happen. `takes_clients`: it has an MQTT listener."""

    def __init__(
        self,
        name: str,
        address: str,
        network: Network,
        redis: RedisConfig,
        settings: dict[str, str],
        rng: random.Random,
        unwell: Callable[[str, str], None],
    ) -> None:
        self.name = name
        self.address = address
        self.role = name.partition("-")[0]
        self.disk = SimulatedDisk(name)
        self.clock = WallClock(network.loop.time)
        self.is_held = False
        """Down, and to stay so."""
        self.speaks = NEWEST
        """The highest cluster version, from its next start on."""
        self.process: Process | None = None
        self.assembly: Assembly | None = None
        """Of the process that runs, once it is ready."""
        self._network = network
        self._loop: SimulatedLoop = network.loop
        self._redis = redis
        self.random = rng
        self._unwell = unwell
        self._task: asyncio.Task[None] | None = None
        self._started_at = 0.0
        self._wait_s = RESTART_S[0]
        self._memory_part = 0.0
        self.configure(settings)

    def configure(self, settings: dict[str, str]) -> None:
        """From its next start on."""
        own = {
            "ROLE": self.role,
            "NODE__NAME": self.name,
            "NODE__HOST": self.address,
            "NODE__DATA_DIR": f"/{self.name}",
            "LISTENERS__TCP__DEFAULT__BIND": f"{self.address}:{MQTT}",
            "CLUSTER__LISTEN": f"{self.address}:{LINK}",
        }
        self._config = load.load(environment={f"FLOCKMQ_{key}": value for key, value in (settings | own).items()})

    # --- its process ---

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def answers(self) -> bool:
        """It runs, and doesn't stand still."""
        return self.is_running and self.process is not None and self.process.answers

    @property
    def is_ready(self) -> bool:
        return self.is_running and self.assembly is not None and self.assembly.node.state == "ready"

    @property
    def running(self) -> Assembly:
        """What it is made of, while it is up."""
        assert self.assembly is not None, f"{self.name} is down"
        return self.assembly

    async def start(self) -> None:
        self._start()

    def _start(self) -> None:
        self.is_held = False
        if self.is_running:
            return
        process = self.process = Process(self.name, self.address)
        process.thread_s = self._thread_s
        self.assembly = None
        self._started_at = self._loop.time()
        self._task = self._loop.create_task(self._run(process), context=process.context)
        self._task.add_done_callback(lambda task: self._over(process, task), context=contextvars.Context())

    async def kill(self) -> None:
        """SIGKILL, and stay down until `start`."""
        self.is_held = True
        self._die()

    async def drain(self) -> None:
        """SIGTERM, SIGKILL when its grace is over; and stay down until `start`."""
        self.is_held = True
        if self._task is None or self.process is None:
            return
        task = self._task
        self._loop.call_soon(task.cancel, context=self.process.context)
        await asyncio.wait([task], timeout=GRACE_S)
        self._die()

    def upgrade(self) -> None:
        self.speaks = NEWEST

    def pause(self) -> None:
        if self.process is not None:
            self.process.stop()

    def resume(self) -> None:
        if self.process is not None:
            self.process.go_on()

    def strain(self, iteration_s: float) -> None:
        if self.process is not None:
            self.process.strain(iteration_s)

    def fill(self) -> None:
        self.disk.is_full = True

    def clear(self) -> None:
        self.disk.is_full = False

    def limit_memory(self, used_part: float) -> None:
        """It uses so much of NODE__MAX_MEMORY."""
        self._memory_part = used_part

    def fail(self, what: str) -> None:
        """It met what nobody foresaw, and ends as it does then."""
        self._unwell(self.name, what)
        self._die()
        self._start_again()

    def _die(self) -> None:
        if self.process is not None and self._task is not None and not self._task.done():
            self._loop.bury()
            self.process.kill()
            self._network.died(self.process)
        self._task = None
        self.assembly = None

    def _over(self, process: Process, task: asyncio.Task[None]) -> None:
        """Its process ended by itself."""
        if process is not self.process:
            return
        error = None if task.cancelled() else task.exception()
        process.kill()
        self._network.died(process)
        self.assembly = None
        self._task = None
        if error is not None and not isinstance(error, UserError):
            self._unwell(self.name, f"ended with {error!r}")
        if not self.is_held:
            self._start_again()

    def _start_again(self) -> None:
        if self._loop.time() - self._started_at > STEADY_S:
            self._wait_s = RESTART_S[0]
        self._loop.call_later(self._wait_s, self._unless_held, context=contextvars.Context())
        self._wait_s = min(2 * self._wait_s, RESTART_S[1])

    def _unless_held(self) -> None:
        if not self.is_held:
            self._start()

    async def _run(self, process: Process) -> None:
        memory_bytes = self._config.node.max_memory
        machine = Machine(
            reactor=self._reactor,
            redis=self._redis,
            disk=self.disk if self.role == "core" else None,
            bind=self._network.bind,
            clock=Clock(self._loop.time, self.clock.now_s),
            entropy=Entropy(self.random, self.random.randbytes),
            speaks=self.speaks,
            memory=NodeMemory(memory_bytes, lambda: int(memory_bytes * self._memory_part)),
        )
        made = assemble(self._config, machine, MQTT)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(made.running())
            reactor = made.node.reactor
            assert isinstance(reactor, SimulatedReactor)
            listener = self._network.listen((self.address, MQTT), process, reactor.accept)
            stack.callback(listener.close)
            made.node.state = "ready"
            self.assembly = made
            await made.stay()

    def _reactor(self, router: Any, limits: Any, clock: Clock) -> SimulatedReactor:
        return SimulatedReactor(router, limits, clock.monotonic, lambda text: self._unwell(self.name, text))

    def _thread_s(self) -> float | None:
        return None if self.disk.stalls else self.random.uniform(*THREAD_S)

    # --- its network, disk and clock ---

    def shift_clock(self, seconds: float, drift: float = 0.0) -> None:
        self.clock.shift(seconds, drift)

    def slow_down(self, delay_s: float) -> None:
        self._network.slow_down(self.address, delay_s)

    def lose(self, percent: float) -> None:
        self._network.lose(self.address, percent)

    def stall_disk(self, stalls: bool) -> None:
        self.disk.stalls = stalls

    def fail_disk(self) -> None:
        self.disk.fails = True

    def corrupt(self) -> None:
        self.disk.corrupt()
