"""A cluster of real processes: cores and replicants, a Redis in one of its shapes, each on a host of its own.

Its hosts can be killed, stopped, cut off, slowed down, filled up and given wrong clocks; a process that ends is started
again, unless a fault holds it down. Only inside a sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp

from faults import network, shim, watch
from faults.host import Host, OnEnd
from faults.node_host import HERE, LINK, MQTT, NO_ANSWER, NodeHost
from faults.redis_hosts import SHAPES, RedisHost, Topology, answers, is_well
from load.history import BoundPassed, NodeSeen, RowsLeft, TablesStood
from load.stage import Node

KEY: Final = "a fault campaign's cluster key, 32+"
READY_MAX_S: Final = 60.0
ANSWER_MAX_S: Final = 4.0
"""Longer than a node waits for others when it is asked about the whole cluster."""
POLL_S: Final = 0.05


def _nobody(host: Host, code: int, last_words: str) -> None:
    """Hears of it."""


class Lab:
    """`redis`: one of SHAPES. `extra`: of the nodes' environment, FLOCKMQ_ names without the FLOCKMQ_."""

    def __init__(
        self,
        logs: Path,
        cores: int,
        replicants: int,
        *,
        redis: str = "server",
        extra: Mapping[str, str] | None = None,
        on_end: OnEnd = _nobody,
    ) -> None:
        network.furnish()
        if shim.can_be_built():
            shim.build()
        self._logs = logs
        self._on_end = on_end
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_MAX_S))
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._topology: Topology = SHAPES[redis](logs, on_end)
        self._settings = {
            "CLUSTER__KEY": KEY,
            "AUTHENTICATION__ALLOW_ANONYMOUS": "true",
            "MQTT__MAX_MQUEUE_LEN": "100000",  # what a bound drops isn't lost
            **self._topology.settings,
            **_majority(cores),
            **(extra or {}),
        }
        self._cores = [self._core(number) for number in range(1, cores + 1)]
        """All that there ever were."""
        self.cores = list(self._cores)
        self.replicants = [self._node(f"replicant-{i}", f"10.77.0.{20 + i}") for i in range(1, replicants + 1)]

    def _core(self, number: int) -> NodeHost:
        return self._node(f"core-{number}", _core_address(number))

    def _node(self, name: str, address: str) -> NodeHost:
        return NodeHost(name, address, self._logs, self._on_end, self._http, self._settings)

    @property
    def nodes(self) -> dict[str, NodeHost]:
        return {node.name: node for node in (*self.cores, *self.replicants)}

    @property
    def hosts(self) -> dict[str, Host]:
        return {host.name: host for host in (*self.redis, *self.cores, *self.replicants)}

    @property
    def _all(self) -> dict[str, Host]:
        """With cores that have left."""
        return self.hosts | {core.name: core for core in self._cores}

    @property
    def redis(self) -> Sequence[RedisHost]:
        return self._topology.hosts

    # --- life ---

    async def start(self) -> None:
        """Returns when all nodes are ready."""
        for host in self.redis:
            await host.start()
        await _until(lambda: asyncio.to_thread(answers, self._topology), "Redis answers")
        await asyncio.to_thread(self._topology.form)
        await _until(lambda: asyncio.to_thread(is_well, self._topology), "Redis is well")
        for node in self.nodes.values():
            await node.start()
        await self.until_ready()

    async def stop(self) -> None:
        await asyncio.gather(*(host.kill() for host in self._all.values()))
        await self._http.close()

    async def until_ready(self) -> None:
        """All nodes are, and Redis is what it was. Raises TimeoutError."""
        await _until(lambda: asyncio.to_thread(is_well, self._topology), "Redis is well")
        await _until(self._all_ready, "all nodes are ready")

    async def _all_ready(self) -> bool:
        """But those that are cut off from a Redis for good: they say that they aren't."""
        ready = [node for node, _ in await self._asked(lambda node: node.get("/readyz"))]
        return all(node in ready or self._is_cut_off(node) for node in self.nodes.values())

    def _is_cut_off(self, node: NodeHost) -> bool:
        return not all(self._reaches(node, redis) for redis in self.redis)

    async def scale_cores(self, count: int) -> None:
        """As the operator does it: new ones come, all at once; then those that stay are restarted with the new number,
        the last one first, each while all are ready; then the last ones leave, all at once. Volumes stay. Raises
        TimeoutError.
        """
        await self.until_ready()
        staying, leaving = self.cores[:count], self.cores[count:]
        while len(self._cores) < count:
            self._cores.append(self._core(len(self._cores) + 1))
        coming = self._cores[len(self.cores) : count]
        self.cores = [*self.cores, *coming]
        for core in coming:
            core.configure(_majority(count))
        await asyncio.gather(*(core.start() for core in coming))
        for core in reversed(staying):
            await self.until_ready()
            core.configure(_majority(count))
            await core.drain()
            await core.start()
        await self.until_ready()
        self.cores = self.cores[:count]
        await asyncio.gather(*(core.drain() for core in leaving))
        await self.until_ready()

    # --- faults ---

    def fronts(self) -> Sequence[Node]:
        """Where clients may go: as a Service would say, some time after."""
        all = [(host, Node(host.name, (host.address, MQTT))) for host in self.replicants]
        return [node for host, node in all if host.is_running] or [node for _, node in all]

    def cut(self, source: str, target: str) -> None:
        """Nothing that `source` sends comes to `target` any more."""
        self._cuts[source, target] += 1
        self._all[target].wire.cut(self._all[source].address)

    def mend(self, source: str, target: str) -> None:
        self._cuts[source, target] -= 1
        self._all[target].wire.mend(self._all[source].address)

    def _reaches(self, one: Host, other: Host) -> bool:
        return not self._cuts[one.name, other.name] and not self._cuts[other.name, one.name]

    async def leader(self) -> Host | None:
        """As the first core knows that answers."""
        for _, status in await self._asked(lambda node: node.get("/api/v1/status")):
            if incarnation := status["leader"]:
                return self.nodes.get(incarnation.partition("@")[0])
        return None

    async def primary(self) -> Host | None:
        return await asyncio.to_thread(self._topology.primary)

    # --- what is looked at ---

    def wall_s(self) -> float:
        return time.time()

    async def tables(self) -> list[TablesStood]:
        now = _now()
        return [
            TablesStood(now, node.name, shard, state["applied"], state["digests"])
            for node, shards in await self._asked(lambda node: node.get("/api/v5/rlog"))
            for shard, state in shards.items()
        ]

    async def routes(self) -> list[RowsLeft]:
        now = _now()
        told = await self._asked(lambda node: node.samples())
        return [RowsLeft(now, node.name, int(watch.value(samples, "flockmq_routes"))) for node, samples in told]

    async def alarms(self) -> list[tuple[str, float]]:
        with contextlib.suppress(*NO_ANSWER):
            return [(alarm["name"], alarm["since_s"]) for alarm in await self.cores[0].get("/api/v5/alarms")]
        return []

    async def look(self) -> list[NodeSeen | BoundPassed]:
        writable, told, slots = await asyncio.gather(
            asyncio.to_thread(self._topology.writable, self._reaches),
            self._asked(lambda node: node.samples()),
            self._slots(),
        )
        seen: list[NodeSeen | BoundPassed] = []
        for node, samples in told:
            serves = bool(writable) and all(self._reaches(node, host) for host in writable)
            ready, stale = (bool(watch.value(samples, f"flockmq_{state}")) for state in ("ready", "stale"))
            seen.append(NodeSeen(_now(), node.name, ready, stale, slots.get(node.name, 0), serves))
            if node.runs.sources == HERE:  # another release's bounds have other names
                seen += watch.bounds_passed(_now(), node.name, samples, watch.bounds_of(samples), len(self.nodes))
        return seen

    async def _slots(self) -> dict[str, int]:
        """How many each core has, by the word of one whose tables aren't old."""
        for core in self.cores:
            if core.is_running:
                with contextlib.suppress(*NO_ANSWER):
                    state = await core.get("/api/v5/cluster")
                    if not state["stale"]:
                        return {row["name"]: row["slots"] for row in state["nodes"]}
        return {}

    async def _asked(self, ask: Callable[[NodeHost], Awaitable[Any]]) -> list[tuple[NodeHost, Any]]:
        """What those nodes say that run, and answer."""

        async def asked(node: NodeHost) -> list[tuple[NodeHost, Any]]:
            with contextlib.suppress(*NO_ANSWER):
                return [(node, await ask(node))]
            return []

        running = [node for node in self.nodes.values() if node.is_running]
        return [pair for pairs in await asyncio.gather(*map(asked, running)) for pair in pairs]


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = _now() + READY_MAX_S
    while not await holds():
        if _now() > deadline:
            raise TimeoutError(f"not within {READY_MAX_S:.0f} s: {what}")
        await asyncio.sleep(POLL_S)


def _core_address(number: int) -> str:
    return f"10.77.0.{10 + number}"


def _majority(cores: int) -> dict[str, str]:
    """What nodes must know of how many cores there are."""
    seeds = ",".join(f"{_core_address(number)}:{LINK}" for number in range(1, cores + 1))
    return {"CLUSTER__CORES": str(cores), "CLUSTER__SEEDS": seeds}
