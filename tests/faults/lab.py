"""A cluster of real processes, each on a network of its own, that can be killed, stopped, cut off and filled up.

    10.77.0.1 lab (the clients) ── bridge ──┬─ core-1 … 10.77.0.11 …
                                            ├─ replicant-1 … 10.77.0.21 …
                                            └─ redis 10.77.0.5

A process that ends is started again, as Kubernetes would, unless a fault holds it down. Only inside a sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import struct
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp

from faults import sandbox
from flockmq.config import schema
from flockmq.embedded import server_binary
from load.history import RowsLeft, TablesStood
from load.stage import Node

KEY: Final = "a fault campaign's cluster key, 32+"
MQTT, LINK, MANAGEMENT, REDIS = 1883, 4370, 18083, 6379
DATA_BYTES: Final = 32 * 1024 * 1024
"""Of a node's volume."""
REDIS_DATA_BYTES: Final = 256 * 1024 * 1024
RESTART_MIN_S: Final = 0.3
RESTART_MAX_S: Final = 3.0
GRACE_S: Final = 20.0
READY_MAX_S: Final = 60.0
POLL_S: Final = 0.05
TESTS: Final = Path(__file__).resolve().parent.parent


class Host:
    """One process on its own network, with its own small volume."""

    def __init__(self, name: str, address: str, logs: Path, data_bytes: int) -> None:
        self.name = name
        self.address = address
        self.data = sandbox.FOLDER / name
        self.log = logs / f"{name}.log"
        self.is_held = False
        """Down, and to stay so."""
        self.is_paused = False
        self.process: Process | None = None
        self.on_end: Callable[[Host, int, str], None] | None = None
        """(host, exit code, the last line of its log), of an end that nobody asked for."""
        self._watching: asyncio.Task[None] | None = None
        self._asked_to_end = False
        self.data.mkdir()
        sandbox.run("mount", "-t", "tmpfs", "-o", f"size={data_bytes}", "none", str(self.data))
        sandbox.run("ip", "netns", "add", name)
        veth = f"v-{name}"
        sandbox.run("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", name)
        sandbox.run("ip", "link", "set", veth, "master", "lab", "up")
        sandbox.run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            sandbox.run("ip", "-n", name, "link", "set", device, "up")

    def command(self) -> tuple[list[str], dict[str, str]]:
        """What runs, and what its environment has besides ours."""
        raise NotImplementedError

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None and not self.is_paused

    async def start(self) -> None:
        self.is_held = False
        if self._watching is None:
            await self._spawn()
            self._watching = asyncio.create_task(self._keep_running())

    async def kill(self) -> None:
        """SIGKILL, and stay down until `start`."""
        self.is_held = self._asked_to_end = True
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
        await self._ended()

    async def drain(self) -> None:
        """SIGTERM, as a pod that is deleted gets it, SIGKILL when its grace is over; and stay down until `start`."""
        self.is_held = self._asked_to_end = True
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_S):
                await self._ended()
        except TimeoutError:
            await self.kill()

    async def _ended(self) -> None:
        if self._watching is not None:
            await asyncio.shield(self._watching)
            self._watching = None
        self.is_paused = False

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self._signal(signal.SIGCONT)

    def fill(self) -> None:
        """Not a byte is left on its volume."""
        with contextlib.suppress(OSError), (self.data / "filler").open("wb") as filler:
            while True:
                filler.write(bytes(65_536))
                filler.flush()

    def clear(self) -> None:
        (self.data / "filler").unlink(missing_ok=True)

    def shift_clock(self, seconds: float) -> None:
        raise NotImplementedError(self.name)

    def last_line(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else ""

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def _spawn(self) -> None:
        arguments, environment = self.command()
        self._asked_to_end = False
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *("nsenter", f"--net=/run/netns/{self.name}", *arguments),
                env=sandbox.environment() | environment,
                cwd=self.data,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # who stands still must not have the others hung up when a shell's job ends
            )

    async def _keep_running(self) -> None:
        wait_s = RESTART_MIN_S
        while True:
            assert self.process is not None
            started = time.monotonic()
            code = await self.process.wait()
            self.is_paused = False
            if not self._asked_to_end and self.on_end is not None:
                self.on_end(self, code, self.last_line())
            if time.monotonic() - started > 10 * RESTART_MAX_S:
                wait_s = RESTART_MIN_S
            if not self.is_held:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RESTART_MAX_S)
            if self.is_held:
                return
            await self._spawn()


class Broker(Host):
    """A core, or a replicant."""

    def __init__(self, name: str, address: str, logs: Path, settings: dict[str, str]) -> None:
        super().__init__(name, address, logs, DATA_BYTES)
        self.role = name.partition("-")[0]
        self._clock = sandbox.FOLDER / f"{name}.clock"
        self.shift_clock(0.0)
        self._settings = settings | {
            "ROLE": self.role,
            "NODE__NAME": name,
            "NODE__HOST": address,
            "NODE__DATA_DIR": str(self.data),
            "LISTENERS__TCP__DEFAULT__BIND": f"0.0.0.0:{MQTT}" if self.role == "replicant" else "",
            "CLUSTER__LISTEN": f"0.0.0.0:{LINK}",
            "MANAGEMENT__LISTEN": f"0.0.0.0:{MANAGEMENT}",
        }

    def command(self) -> tuple[list[str], dict[str, str]]:
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(TESTS))))
        settings = {f"FLOCKMQ_{name}": value for name, value in self._settings.items()}
        environment = settings | {"FAULTS_CLOCK": str(self._clock), "PYTHONPATH": path}
        return [sys.executable, "-P", "-m", "faults.launch", "run"], environment

    def shift_clock(self, seconds: float) -> None:
        """Its wall clock is that much off from now on."""
        with self._clock.open("r+b" if self._clock.exists() else "wb") as clock:
            clock.write(struct.pack("d", seconds))


class Redis(Host):
    """A Valkey that answers only what its append-only file has."""

    def __init__(self, address: str, logs: Path) -> None:
        super().__init__("redis", address, logs, REDIS_DATA_BYTES)
        self._copy = sandbox.FOLDER / "redis.copy"

    def command(self) -> tuple[list[str], dict[str, str]]:
        options = {
            "bind": "0.0.0.0",
            "port": str(REDIS),
            "protected-mode": "no",
            "dir": str(self.data),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "auto-aof-rewrite-min-size": "16mb",
            "maxmemory-policy": "noeviction",
        }
        return [str(server_binary()), *itertools.chain(*((f"--{key}", value) for key, value in options.items()))], {}

    def copy_data(self) -> None:
        """As a replica that hears nothing from now on."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.data, self._copy)

    def restore_copy(self) -> None:
        self.empty()
        shutil.copytree(self._copy, self.data, dirs_exist_ok=True)

    def empty(self) -> None:
        for entry in self.data.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


class Lab:
    def __init__(self, logs: Path, cores: int, replicants: int, extra: dict[str, str] | None = None) -> None:
        """`extra`: of the nodes' environment, FLOCKMQ_ names without the FLOCKMQ_."""
        sandbox.run("ip", "link", "add", "lab", "type", "bridge")
        sandbox.run("ip", "address", "add", "10.77.0.1/24", "dev", "lab")
        sandbox.run("ip", "link", "set", "lab", "up")
        core_addresses = [f"10.77.0.{11 + number}" for number in range(cores)]
        settings = {
            "REDIS__URL": f"redis://10.77.0.5:{REDIS}",
            "CLUSTER__KEY": KEY,
            "CLUSTER__SEEDS": ",".join(f"{address}:{LINK}" for address in core_addresses),
            "AUTHENTICATION__ALLOW_ANONYMOUS": "true",
            "MQTT__MAX_MQUEUE_LEN": "100000",  # what a bound drops isn't lost
            **(extra or {}),
        }
        if "cores" in schema.Cluster.__struct_fields__:
            settings["CLUSTER__CORES"] = str(cores)
        self.redis = Redis("10.77.0.5", logs)
        self.cores = [Broker(f"core-{i}", address, logs, settings) for i, address in enumerate(core_addresses, 1)]
        self.replicants = [
            Broker(f"replicant-{i}", f"10.77.0.{20 + i}", logs, settings) for i in range(1, replicants + 1)
        ]
        self.brokers = [*self.cores, *self.replicants]
        self.hosts: dict[str, Host] = {host.name: host for host in (self.redis, *self.brokers)}
        self._http: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Returns when all nodes are ready."""
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2.0))
        await self.redis.start()
        await self._until(self._redis_answers, "Redis answers")
        for broker in self.brokers:
            await broker.start()
        await self.until_ready()

    async def stop(self) -> None:
        await asyncio.gather(*(host.kill() for host in self.hosts.values()))
        if self._http is not None:
            await self._http.close()

    async def until_ready(self) -> None:
        """Raises TimeoutError."""
        await self._until(self._all_ready, "all nodes are ready")

    def fronts(self) -> Sequence[Node]:
        """Where clients may go: as a Service would say, some time after."""
        all = [Node(broker.name, (broker.address, MQTT)) for broker in self.replicants]
        return [node for node in all if self.hosts[node.name].is_running] or all

    def cut(self, source: str, target: str) -> None:
        """Nothing that `source` sends comes to `target` any more."""
        self._firewall(target, "-A", source)

    def mend(self, source: str, target: str) -> None:
        self._firewall(target, "-D", source)

    async def get(self, host: Host, path: str) -> Any:
        """What its management says; raises aiohttp.ClientError, OSError or TimeoutError."""
        assert self._http is not None
        async with self._http.get(f"http://{host.address}:{MANAGEMENT}{path}") as answer:
            answer.raise_for_status()
            return await (answer.json() if path.startswith("/api") else answer.text())

    async def tables(self) -> list[TablesStood]:
        now = asyncio.get_running_loop().time()
        return [
            TablesStood(now, broker.name, shard, state["applied"], state["digests"])
            for broker, shards in await self._asked(lambda broker: self.get(broker, "/api/v5/rlog"))
            for shard, state in shards.items()
        ]

    async def routes(self) -> list[RowsLeft]:
        now = asyncio.get_running_loop().time()
        told = await self._asked(lambda broker: self.metric(broker, "flockmq_routes"))
        return [RowsLeft(now, broker.name, int(routes)) for broker, routes in told]

    async def alarms(self) -> list[tuple[str, float]]:
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            return [(alarm["name"], alarm["since_s"]) for alarm in await self.get(self.cores[0], "/api/v5/alarms")]
        return []

    def wall_s(self) -> float:
        return time.time()

    async def _asked(self, ask: Callable[[Broker], Awaitable[Any]]) -> list[tuple[Broker, Any]]:
        """What those brokers say that answer."""
        said = []
        for broker in self.brokers:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                said.append((broker, await ask(broker)))
        return said

    async def metric(self, host: Host, name: str) -> float:
        """The sum over its labels."""
        lines = [line.split() for line in (await self.get(host, "/metrics")).splitlines() if not line.startswith("#")]
        return sum(float(value) for key, value, *_ in lines if key.partition("{")[0] == name)

    async def leader(self) -> Broker | None:
        """As the first core knows that answers."""
        for core in self.cores:
            if core.is_running:
                with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                    if incarnation := (await self.get(core, "/api/v1/status"))["leader"]:
                        name = incarnation.partition("@")[0]
                        return next((broker for broker in self.cores if broker.name == name), None)
        return None

    async def _all_ready(self) -> bool:
        try:
            await asyncio.gather(*(self.get(broker, "/readyz") for broker in self.brokers))
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
        return True

    async def _redis_answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(self.redis.address, REDIS)
        except OSError:
            return False
        writer.close()
        return True

    async def _until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline = time.monotonic() + READY_MAX_S
        while not await holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {READY_MAX_S:.0f} s: {what}")
            await asyncio.sleep(POLL_S)

    def _firewall(self, at: str, action: str, source: str) -> None:
        network = ("nsenter", f"--net=/run/netns/{at}")
        sandbox.run(*network, "iptables", "-w", action, "INPUT", "-s", self.hosts[source].address, "-j", "DROP")
