"""`flockmq run --workers N`: one broker of several processes, for a machine with several processors.

    this process       the embedded Valkey; starts again whatever ends
     ├─ NAME           a core, at the management address; clients don't connect to it
     ├─ NAME-1         a replicant, at the addresses of all listeners
     └─ NAME-2 …       at the same addresses: the kernel spreads the clients over them (SO_REUSEPORT)

The nodes are a cluster like any other: what ARCHITECTURE.md says of cores and replicants holds for them. With the same
data folder a broker can be started with workers and without.

Invariants: the ports stay this broker's while a node is started again. When `run` returns, or this process ends in any
way, no node is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from flockmq import bounds, listening_sockets, node_processes
from flockmq.config.listener_settings import UnixListenerSettings, named_listeners
from flockmq.config.load import DEFAULT_LISTENER
from flockmq.config.schema import Config
from flockmq.config.values import Address
from flockmq.errors import ConfigError
from flockmq.management.view import NodePorts
from flockmq.memory_limit import node_memory
from flockmq.node_processes import NodeFailed, NodeProcess, exit_report
from flockmq.redis.embedded import embedded_valkey

log: Final = logging.getLogger(__name__)

OPTIONS: Final = ("role", "listen", "management", "name", "data-dir", "cluster-listen", "seeds")
"""Options of `flockmq run` that a node gets by `NodePlan.settings`; all others it gets as they are."""
LOOPBACK: Final = "127.0.0.1"
STOP_MARGIN_S: Final = 10.0
"""How much longer than `node.drain_timeout` a node may take to stop."""
_SYSTEM: Final = Path("/")


class NodePlan(NamedTuple):
    """A node to start: its settings by key."""

    name: str
    role: str
    settings: dict[str, str]


def processors(root: Path = _SYSTEM) -> int:
    """How many processors this process may use: what `--workers auto` means."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()
    except OSError:
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, math.ceil(int(quota) / int(period))))


def check(config: Config) -> None:
    """Raises ConfigError if these settings can't be those of several processes."""
    if config.role != "single":
        raise ConfigError(f"--workers: a {config.role} is one process; leave --workers or the role out")


def shared_settings(config: Config, redis_url: str | None) -> dict[str, str]:
    """Settings of all nodes. They are passed in the environment, because other users can read command lines."""
    shared = {} if redis_url is None else {"redis.url": redis_url}
    has_key = config.cluster.key is not None or config.cluster.key_file is not None
    return shared if has_key else {**shared, "cluster.key": secrets.token_hex(32)}


def core_plan(config: Config, shared: dict[str, str]) -> NodePlan:
    """The core has the broker's name and folder, and no listener."""
    listeners = {f"listeners.{named.type}.{named.name}.bind": "" for named in named_listeners(config.listeners)}
    own = {
        "role": "core",
        "node.name": config.node.name,
        "node.data_dir": str(config.node.data_dir),
        "cluster.listen": str(config.cluster.listen),
        "management.listen": str(config.management.listen),
        "management.readiness_of": "replicants",
        DEFAULT_LISTENER: "",
    }
    return NodePlan(config.node.name, "core", {**shared, **listeners, **own})


def worker_plan(
    config: Config, shared: dict[str, str], number: int, core: NodePorts, ports: dict[str, int]
) -> NodePlan:
    """Of worker `number`, from 1 on: `core` is where its core listens, `ports` by listener. A Unix socket can be of one
    process only, the first worker. Its management is at the broker's port and `number`, or at any free one.
    """
    listeners: dict[str, str] = {}
    for named in named_listeners(config.listeners):
        key = f"listeners.{named.type}.{named.name}"
        bind = named.settings.bind
        if isinstance(bind, Address):
            listeners |= {f"{key}.bind": str(Address(bind.host, ports[str(named)])), f"{key}.reuseport": "true"}
        elif number > 1:
            listeners[f"{key}.bind"] = ""
    management, link = config.management.listen, config.cluster.listen
    name = f"{config.node.name}-{number}"
    own = {
        "role": "replicant",
        "node.name": name,
        "node.data_dir": str(_folder(config) / name),
        "cluster.listen": str(Address(link.host, 0)),
        "cluster.seeds": str(Address(_reached(link.host), core.link or 0)),
        "management.listen": str(Address(management.host, management.port and core.management + number)),
    }
    return NodePlan(name, "replicant", {**shared, **listeners, **own})


def _folder(config: Config) -> Path:
    assert config.node.data_dir is not None, "a single node has a folder"
    return config.node.data_dir


def _reached(host: str) -> str:
    """The address at which a process of this machine reaches who listens at `host`."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # it is only compared


def wait_s(tries: int) -> float:
    """How long to wait before a node is started again, after `tries` starts that failed."""
    return float(min(bounds.WORKER_RETRY_MIN_S * 2 ** min(tries, 16), bounds.WORKER_RETRY_MAX_S))


async def run(
    config: Config, workers: int, arguments: Sequence[str], ready: Callable[[NodePorts], None], hurry: asyncio.Event
) -> int:
    """Run the broker until cancelled; returns the exit code. `arguments`: options for `flockmq run` of each node.
    `ready` is called once, when all nodes accept clients; `hurry` is set when they are to end at once. Raises
    UserError.
    """
    async with contextlib.AsyncExitStack() as stack:
        ports = _reserve(config, stack)
        url = None
        if config.redis.url is None:
            url = (await stack.enter_async_context(embedded_valkey(config.node.data_dir))).url
        broker = _Broker(arguments, config.node.drain_timeout + STOP_MARGIN_S, hurry)
        stack.push_async_callback(broker.stop)
        memory = node_memory(has_valkey=config.redis.url is None, max_bytes=config.node.max_memory)
        shared = shared_settings(config, url) | {"node.max_memory": str(memory.limit_bytes // (workers + 1))}
        try:
            (core,) = await broker.start([core_plan(config, shared)])
            await broker.start([worker_plan(config, shared, n, core, ports) for n in range(1, workers + 1)])
        except NodeFailed as error:
            if error.is_told:
                return error.exit_code
            raise
        mqtt_port = ports.get("tcp:default")
        ready(NodePorts(mqtt=mqtt_port, listeners=ports, link=core.link, management=core.management))
        await broker.keep()
    return 0


def _reserve(config: Config, stack: contextlib.ExitStack | contextlib.AsyncExitStack) -> dict[str, int]:
    """The ports of all listeners; nobody else gets them until `stack` ends. Raises AddressInUse."""
    ports: dict[str, int] = {}
    for named in named_listeners(config.listeners):
        if isinstance(named.settings, UnixListenerSettings):
            ports[str(named)] = 0
            continue
        bind = named.settings.bind
        assert bind is not None, "named_listeners gives those that are on"
        key = f"listeners.{named.type}.{named.name}.bind"
        bound = stack.enter_context(listening_sockets.bound(bind.host, bind.port, key, reuseport=True))
        port: int = bound.getsockname()[1]
        ports[str(named)] = port
    return ports


class _Broker:
    """All nodes. They are started with `start`, in order, and kept by `keep`."""

    def __init__(self, arguments: Sequence[str], stop_timeout_s: float, hurry: asyncio.Event) -> None:
        self._arguments = arguments
        self._stop_timeout_s = stop_timeout_s
        self._hurry = hurry
        self._nodes: dict[str, tuple[NodePlan, NodeProcess]] = {}

    async def start(self, plans: Sequence[NodePlan]) -> list[NodePorts]:
        """Start these nodes at once, and wait until they are ready. A port that was any free one is kept. Raises
        NodeFailed."""
        nodes = [await self._begin(plan) for plan in plans]
        await node_processes.wait_ready(nodes)
        return [self._keep_ports(plan, node) for plan, node in zip(plans, nodes, strict=True)]

    async def keep(self) -> None:
        """Start each node again that ends, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for plan, node in self._nodes.values():
                group.create_task(self._keep(plan, node))

    async def stop(self) -> None:
        """The replicants first: they need the core for what their clients leave behind."""
        for role in ("replicant", "core"):
            nodes = [node for plan, node in self._nodes.values() if plan.role == role]
            await node_processes.stop(nodes, self._stop_timeout_s, self._hurry)

    async def _begin(self, plan: NodePlan) -> NodeProcess:
        node = await node_processes.start(plan.name, plan.role, None, plan.settings, self._arguments)
        self._nodes[plan.name] = plan, node
        return node

    def _keep_ports(self, plan: NodePlan, node: NodeProcess) -> NodePorts:
        assert node.ports is not None, "it is ready"
        for key, port in (("cluster.listen", node.ports.link), ("management.listen", node.ports.management)):
            host = plan.settings[key].rpartition(":")[0]
            plan.settings[key] = f"{host}:{port or 0}"
        return node.ports

    async def _keep(self, plan: NodePlan, node: NodeProcess) -> None:
        loop = asyncio.get_running_loop()
        tries, started_at = 0, loop.time()
        while True:
            report = await exit_report(node)
            tries = 0 if loop.time() - started_at > bounds.WORKER_STEADY_S else tries + 1
            log.warning("%s; it is started again", report)
            await asyncio.sleep(wait_s(tries))
            node, started_at = await self._begin(plan), loop.time()
            if not await node.ready_pipe.readline():
                continue
            log.info("%s is ready again", plan.name)
