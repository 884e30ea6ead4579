"""A simulated cluster: cores and replicants, a Redis, the network between them, and what may be done to each.

    10.77.0.1 the clients      10.77.0.11 … core-1 …      10.77.0.21 … replicant-1 …      10.77.0.5 redis

What faults/lab.py is with real processes: faults and load don't know which of the two they have.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from faults.watch import bounds_of, bounds_passed
from flockmq import tasks
from flockmq.bounds import MQUEUE_AHEAD_MAX
from flockmq.durable.pending_writes import SlotKeys
from flockmq.durable.session import DurableSession
from flockmq.membership.cluster_version import NEWEST, OLDEST
from flockmq.node.assembly import Assembly
from flockmq.routing.slots import slot_of
from flockmq.telemetry.metrics import bound_samples
from load.history import AnyEvent, BoundPassed, NodeSeen, RowsLeft, TablesStood, Unwell
from load.stage import Limits, Node
from simulation.admin import SimulatedAdmin
from simulation.loop import Process, SimulatedLoop, current
from simulation.network import Network
from simulation.node import LINK, MQTT, SimulatedNode
from simulation.redis.keyspace import Hash
from simulation.redis_host import RedisHost
from simulation.redis_link import SimulatedRedisConfig
from simulation.topology import SERVER, Topology
from simulation.wall_clock import EPOCH_S

KEY: Final = "a simulation's cluster key, 32 bytes or more"
CLIENTS: Final = "10.77.0.1"
SLOTS: Final = 1024
POLL_S: Final = 0.05
READY_MAX_S: Final = 60.0
BOUNDS: Final = bounds_of(bound_samples())
"""Of every node."""
SAMPLES_EVERY_LOOKS: Final = 5
NOBODY: Final = "nobody"
"""Who has slots that have no owner, among the nodes that are seen."""


class Shape(NamedTuple):
    """What a cluster is made of. `settings`: of the nodes' environment, FLOCKMQ_ names without the FLOCKMQ_."""

    cores: int = 3
    replicants: int = 2
    settings: tuple[tuple[str, str], ...] = ()
    clients_at_cores: bool = False
    redis: str = SERVER
    """Or SENTINEL, or CLUSTER."""
    old: tuple[str, ...] = ()
    """Nodes that speak the first cluster version only, as an older release does."""


class SimulatedCluster:
    """`chance(what)` is a source of its own for each use, so that one that asks more often changes no other."""

    def __init__(self, loop: SimulatedLoop, seed: int, shape: Shape = Shape()) -> None:  # noqa: B008
        self.loop = loop
        self.seed = seed
        self.shape = shape
        self.events: list[AnyEvent] = []
        self.network = loop.network = Network(loop, self.chance("network"))
        self.clients = Process("clients", CLIENTS)
        self.topology = Topology(shape.redis, self.network, self.chance("redis"))
        self._settings = {
            "REDIS__URL": self.topology.url,
            "CLUSTER__KEY": KEY,
            "CLUSTER__VERSION_SETTLE": "0",
            "AUTHENTICATION__ALLOW_ANONYMOUS": "true",
            **_majority(shape.cores),
            **dict(shape.settings),
        }
        self._cores = [self._core(number) for number in range(1, shape.cores + 1)]
        """All that there ever were."""
        self.cores = list(self._cores)
        self.replicants = [self._node(f"replicant-{i}", f"10.77.0.{20 + i}") for i in range(1, shape.replicants + 1)]
        self.admin = SimulatedAdmin(self)
        self._looks = 0
        loop.set_exception_handler(self._uncaught)

    def _core(self, number: int) -> SimulatedNode:
        return self._node(f"core-{number}", _core_address(number))

    def _node(self, name: str, address: str) -> SimulatedNode:
        redis = self.topology
        config = SimulatedRedisConfig(redis.url, min_replicas=redis.min_replicas, network=self.network)
        chance = self.chance(name)
        node = SimulatedNode(name, address, self.network, config, self._settings, chance, self.unwell)
        node.speaks = OLDEST if name in self.shape.old else NEWEST
        return node

    @property
    def nodes(self) -> dict[str, SimulatedNode]:
        return {node.name: node for node in (*self.cores, *self.replicants)}

    @property
    def hosts(self) -> dict[str, Any]:
        return {host.name: host for host in self.redis} | self.nodes

    @property
    def redis(self) -> Sequence[RedisHost]:
        return self.topology.hosts

    def chance(self, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what}")

    def begin(self, seed: int) -> None:
        """All chance is of this seed from now on; what was seen so far is nothing."""
        self.seed = seed
        self.network.random.seed(f"{seed} network")
        self.topology.reseed(self.chance)
        for name, node in self.nodes.items():
            node.random.seed(f"{seed} {name}")
        self.network.trace = 0
        self.events.clear()

    def record(self, event: AnyEvent) -> None:
        self.events.append(event)

    def unwell(self, node: str, what: str) -> None:
        self.record(Unwell(self.loop.time(), node, what))

    # --- life ---

    async def start(self) -> None:
        """Returns when all nodes are ready."""
        self.topology.start()
        for node in self.nodes.values():
            await node.start()
        await self.until_ready()

    async def until_ready(self) -> None:
        """Every slot has an owner that has it, too, Redis is what it was, and the cluster is at the highest version
        that all speak. Raises TimeoutError."""
        async with asyncio.timeout(READY_MAX_S):
            while not self._all_ready():  # noqa: ASYNC110 - simulated time
                await asyncio.sleep(POLL_S)

    def _all_ready(self) -> bool:
        if not self.topology.is_well():
            return False
        if not all(node.is_ready for node in self.nodes.values()):
            return False
        made = [node.assembly for node in self.nodes.values() if node.assembly is not None]
        version = min(node.speaks for node in self.nodes.values())
        if any(each.cluster.version.current < version for each in made):
            return False
        hostings = [each.node.durable_host for each in made if each.node.durable_host is not None]
        return all("" not in each.cluster.slots.owners for each in made) and not any(
            hosting.session_service.manager.is_loading() for hosting in hostings
        )

    async def scale_cores(self, count: int) -> None:
        """As faults/lab.py does it."""
        await self.until_ready()
        staying, leaving = self.cores[:count], self.cores[count:]
        while len(self._cores) < count:
            self._cores.append(self._core(len(self._cores) + 1))
        coming = self._cores[len(self.cores) : count]
        self.cores = [*self.cores, *coming]
        for core in coming:
            core.configure(self._settings | _majority(count))
            await core.start()
        for core in reversed(staying):
            await self.until_ready()
            core.configure(self._settings | _majority(count))
            await core.drain()
            await core.start()
        await self.until_ready()
        self.cores = self.cores[:count]
        await asyncio.gather(*(core.drain() for core in leaving))
        await self.until_ready()

    # --- faults ---

    async def primary(self) -> RedisHost | None:
        return self.topology.primary()

    def fronts(self) -> Sequence[Node]:
        """Where clients may go: as a Service would say, some time after."""
        nodes = [*self.replicants, *(self.cores if self.shape.clients_at_cores else ())]
        all = [(node, Node(node.name, (node.address, MQTT))) for node in nodes]
        return [place for node, place in all if node.is_running] or [place for _, place in all]

    def cut(self, source: str, target: str) -> None:
        self.network.cut(self.hosts[source].address, self.hosts[target].address)

    def mend(self, source: str, target: str) -> None:
        self.network.mend(self.hosts[source].address, self.hosts[target].address)

    def slow(self, source: str, target: str, seconds: float) -> None:
        """What `source` sends to `target` takes so much longer from now on."""
        self.network.slow_down((self.hosts[source].address, self.hosts[target].address), seconds)

    async def leader(self) -> SimulatedNode | None:
        return next(
            (node for node in self.cores if node.assembly is not None and node.assembly.cluster.is_leader), None
        )

    def owner_of(self, client: str) -> str:
        """The node that owns the slot of this client id, as a node that runs knows; "" for none."""
        return self._owners()[slot_of(client.encode())]

    def slots_of(self, node: str) -> int:
        """How many it owns."""
        return self._owners().count(node)

    def _owners(self) -> list[str]:
        """Of all slots: the names of nodes, "" for none."""
        made = next(node.assembly for node in (*self.replicants, *self.cores) if node.assembly is not None)
        return [owner.partition("@")[0] for owner in made.cluster.slots.owners]

    def clients_of(self, owner: str, count: int) -> list[str]:
        """So many client ids whose slots this node owns."""
        owners, names = self._owners(), (f"client-{number}" for number in itertools.count(1))
        of_owner = (name for name in names if owners[slot_of(name.encode())] == owner)
        return list(itertools.islice(of_owner, count))

    async def until_moved(self, client: str, owner: str) -> None:
        """The slot of this client id is another node's than this one's."""
        while self.owner_of(client) in ("", owner):  # noqa: ASYNC110 - simulated time
            await asyncio.sleep(POLL_S)

    def redis_of(self, client: str) -> RedisHost:
        """Where its session is."""
        return self.topology.host_of(SlotKeys(slot_of(client.encode())).sessions)

    def session_of(self, client: str) -> dict[bytes, bytes]:
        """What Redis has of a durable session, by field (durable/session_record.py): to be looked at, or to be
        spoilt."""
        keys = self.redis_of(client).server.keys
        value = keys.values.get(SlotKeys(slot_of(client.encode())).sessions + client.encode())
        assert value is None or isinstance(value, Hash)
        return Hash() if value is None else value

    # --- what is looked at ---

    def wall_s(self) -> float:
        return EPOCH_S + self.loop.time()

    async def tables(self) -> list[TablesStood]:
        now = self.loop.time()
        return [
            TablesStood(now, node.name, shard, state.applied, dict(state.digests))
            for node in self.nodes.values()
            if node.assembly is not None
            for shard, state in node.assembly.node.view.rlog().items()
        ]

    async def routes(self) -> list[RowsLeft]:
        now = self.loop.time()
        return [
            RowsLeft(now, node.name, len(node.assembly.rlog.tables.routes))
            for node in self.nodes.values()
            if node.assembly is not None
        ]

    async def alarms(self) -> list[tuple[str, float]]:
        """As the first core tells them: names, and since when by its clock."""
        for core in self.cores:
            if core.assembly is not None:
                return [(alarm.name, alarm.since_s) for alarm in core.assembly.node.alarms.rows()]
        return []

    def says_ready(self, node: str) -> bool:
        """As /readyz has it."""
        made = self.nodes[node].assembly
        return made is not None and made.node.view.ready()[0]

    def is_said_ready(self, node: str, by: str) -> bool:
        """As another one's /api/v1/nodes has it."""
        made = self.nodes[by].assembly
        return made is not None and any(row.name == node and row.ready for row in made.node.view.nodes())

    async def look(self) -> list[NodeSeen | BoundPassed]:
        """How each node is that answers."""
        self._looks += 1
        now = self.loop.time()
        seen: list[NodeSeen | BoundPassed] = []
        for node in self.nodes.values():
            made = node.assembly
            if made is None or not node.answers:
                continue
            is_core = node.role == "core"
            slots = made.cluster.slots.owners.count(made.cluster.incarnation) if is_core else 0
            ready, _ = made.node.view.ready()
            is_stale, dropped = made.cluster.staleness.is_stale, made.node.router.counters.dropped_queue_full
            seen.append(NodeSeen(now, node.name, ready, is_stale, slots, self._serves(node), dropped))
            seen += self._queues_passed(now, node.name, made)
            if self._looks % SAMPLES_EVERY_LOOKS == 0:
                seen += bounds_passed(now, node.name, made.node.metrics.samples(), BOUNDS, len(self.nodes))
        absent = self._absent_owners().items()
        return [*seen, *(NodeSeen(now, owner or NOBODY, False, False, slots, False, 0) for owner, slots in absent)]

    def _queues_passed(self, now: float, node: str, made: Assembly) -> Iterator[BoundPassed]:
        """What waits in a session is no metric; so it is looked at here. While its client reads, more may."""
        away = int(self._settings.get("MQTT__MAX_MQUEUE_LEN", Limits().max_mqueue_len))
        if made.node.durable_host is not None:
            for client_id, session in made.node.durable_host.session_service.sessions.by_id.items():
                assert isinstance(session, DurableSession)
                bound = away if session.meta.left_ms else away + MQUEUE_AHEAD_MAX
                if session.messages.waiting() > bound:
                    yield BoundPassed(
                        now, node, f"what waits for {client_id.decode()}", session.messages.waiting(), bound
                    )

    def _absent_owners(self) -> Counter[str]:
        """Incarnations that don't run, and how many slots a core says that they own; "": how many nobody owns."""
        made = {node.name: node.assembly for node in self.nodes.values() if node.assembly is not None}
        running = {each.cluster.incarnation for each in made.values()}
        said_by = next((made[core.name] for core in self.cores if core.name in made), None)
        owners = Counter([""] * SLOTS if said_by is None else said_by.cluster.slots.owners)
        return Counter({owner: count for owner, count in owners.items() if count and owner not in running})

    def _serves(self, node: SimulatedNode) -> bool:
        return self.topology.serves(node.address)

    def _uncaught(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A task that a node can't do without failed: it ends, as `tasks.end_process_on_failure` has it. Whatever else
        nobody caught is a defect too."""
        process, error = current.get(), context.get("exception")
        name = "" if process is None else process.name
        text = f"{context.get('message')}: {error!r}"
        if isinstance(error, tasks.VitalTaskFailed) and name in self.nodes:
            text += f" {error.__cause__!r}"
            self.loop.call_soon(self.nodes[name].fail, text, context=contextvars.Context())
        else:
            self.unwell(name, text)


def _core_address(number: int) -> str:
    return f"10.77.0.{10 + number}"


def _majority(cores: int) -> dict[str, str]:
    """What changes with the number of cores."""
    seeds = ",".join(f"{_core_address(number)}:{LINK}" for number in range(1, cores + 1))
    return {"CLUSTER__SEEDS": seeds, "CLUSTER__CORES": str(cores)}
