"""`flockmq dev`: a whole cluster on this machine, with a `flockmq run` process for each node, on 127.0.0.1.

The first core starts alone, because it is the seed of the others. Then all others start at once. If Valkey exits, it is
started again (redis/embedded.py); a node isn't.

Invariants: when `run` returns, or this process ends in any way, no node and no Valkey is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from flockmq import node_processes
from flockmq.config.load import DEFAULT_LISTENER
from flockmq.config.values import Address
from flockmq.memory_limit import node_memory
from flockmq.node_processes import NodeProcess, exit_report
from flockmq.redis.embedded import embedded_valkey
from flockmq.smoke_test import check_crossing

LOOPBACK: Final = "127.0.0.1"
STOP_TIMEOUT_S: Final = 1.5
"""Time for the replicants to stop, and then for the cores. With Valkey it takes less than 5 s in total."""

OPTIONS: Final = {"--listen HOST:PORT": "--port P", "--management HOST:PORT": "--management-port P"}
"""Option in a node's error message → option of `flockmq dev` to show instead."""


async def run(
    *, cores: int, replicants: int, mqtt_port: int, management_port: int, redis_url: str | None, once: bool
) -> int:
    """Run the cluster until cancelled, or, with `once`, until a message has crossed it. Returns the exit code."""
    nodes: list[NodeProcess] = []
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flockmq-dev-")))
        memory = node_memory(has_valkey=redis_url is None)
        where = "the one that you named"  # its URL may have a password
        if redis_url is None:
            where = redis_url = (await stack.enter_async_context(embedded_valkey(None))).url
        share = str(memory.limit_bytes // (cores + replicants))
        shared = shared_settings(redis_url) | {"node.max_memory": share}
        await stack.enter_async_context(_cluster(nodes, folder, cores, replicants, mqtt_port, management_port, shared))
        _print(*table(nodes))
        if not await _show_crossing(nodes):
            return 1
        if not once:
            _print(
                "",
                "Anonymous clients are allowed: this is for trying things out, and listens on 127.0.0.1 only.",
                f"Redis: {where}",
                f"Logs: {folder}/*.log. Press Ctrl-C to stop.",
            )
            return await _watch(nodes)
    return int(any(node.has_failed() for node in nodes))


# --- starting and stopping ------------------------------------------------------------------------------------------


def shared_settings(redis_url: str) -> dict[str, str]:
    """Settings of all nodes. They are passed in the environment, because other users can read command lines."""
    return {
        "redis.url": redis_url,
        "cluster.key": secrets.token_hex(32),
        "cluster.listen": str(Address(LOOPBACK, 0)),
        "node.host": LOOPBACK,
        "authentication.allow_anonymous": "true",
    }


@contextlib.asynccontextmanager
async def _cluster(
    nodes: list[NodeProcess],
    folder: Path,
    cores: int,
    replicants: int,
    mqtt_port: int,
    management_port: int,
    shared: dict[str, str],
) -> AsyncIterator[None]:
    """Start all nodes, and append them to `nodes`. Inside the block all of them are ready."""

    async def start(role: str, number: int, mqtt: str) -> NodeProcess:
        own = {
            "role": role,
            "node.name": f"{role}-{number}",
            "node.data_dir": str(folder / f"{role}-{number}"),
            DEFAULT_LISTENER: mqtt,
            "management.listen": str(Address(LOOPBACK, management_port and management_port + len(nodes))),
        }
        node = await node_processes.start(own["node.name"], role, folder / f"{own['node.name']}.log", {**shared, **own})
        nodes.append(node)
        return node

    try:
        first = await start("core", 1, "")
        await node_processes.wait_ready([first], OPTIONS)
        assert first.ports is not None
        shared["cluster.seeds"] = f"{LOOPBACK}:{first.ports.link}"
        for number in range(2, cores + 1):
            await start("core", number, "")
        for number in range(1, replicants + 1):
            await start("replicant", number, str(Address(LOOPBACK, mqtt_port and mqtt_port + number - 1)))
        await node_processes.wait_ready(nodes[1:], OPTIONS)
        yield
    finally:
        await _stop([node for node in nodes if node.role == "replicant"])
        await _stop([node for node in nodes if node.role == "core"])


async def _stop(nodes: Sequence[NodeProcess]) -> None:
    running = [node for node in nodes if node.process.returncode is None]
    await node_processes.stop(running, STOP_TIMEOUT_S)
    for node in running:
        if node.has_failed():
            _print(await exit_report(node, OPTIONS))


# --- output ---------------------------------------------------------------------------------------------------------


def table(nodes: Sequence[NodeProcess]) -> list[str]:
    """A table of all nodes' ports, as lines."""
    rows = [("node", "MQTT", "management (/readyz /metrics /api/v1/nodes)", "cluster link")]
    for node in nodes:
        assert node.ports is not None
        mqtt = str(Address(LOOPBACK, node.ports.mqtt)) if node.ports.mqtt else "-"
        rows.append((node.name, mqtt, f"http://{LOOPBACK}:{node.ports.management}", f"{LOOPBACK}:{node.ports.link}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


async def _show_crossing(nodes: Sequence[NodeProcess]) -> bool:
    fronts = [(node.name, Address(LOOPBACK, node.ports.mqtt)) for node in nodes if node.ports and node.ports.mqtt]
    (here, here_mqtt), (there, there_mqtt) = fronts[0], fronts[-1]
    try:
        crossing = await check_crossing(here_mqtt, there_mqtt)
    except (OSError, EOFError) as error:
        _print("", f"No message crossed from {here} to {there}: {error or type(error).__name__}")
        return False
    _print(
        "",
        f'A message crossed: "{crossing.payload}" on {crossing.topic}, published on {here} (port '
        f"{here_mqtt.port}), reached a subscriber on {there} (port {there_mqtt.port}) in "
        f"{crossing.seconds * 1000:.1f} ms.",
    )
    return True


async def _watch(nodes: Sequence[NodeProcess]) -> int:
    """Report each node that exits. Returns 1 when none is left."""
    alive = {asyncio.ensure_future(node.process.wait()): node for node in nodes}
    while alive:
        ended, _ = await asyncio.wait(alive, return_when=asyncio.FIRST_COMPLETED)
        for end in ended:
            node = alive.pop(end)
            rest = f"{len(alive)} of {len(nodes)} nodes go on." if alive else "None is left."
            _print("", await exit_report(node, OPTIONS), rest)
    return 1


def _print(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)
