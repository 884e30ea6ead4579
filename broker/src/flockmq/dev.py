"""`flockmq dev`: a whole cluster on this machine, with a `flockmq run` process for each node, on 127.0.0.1.

The first core starts alone, because it is the seed of the others. Then all others start at once. A ready node writes
its ports to a pipe (`--ready-fd`); if the pipe ends without a line, the node has died. If Valkey exits, it is started
again (redis/embedded.py); a node isn't.

Invariants: when `run` returns, or this process ends in any way, no node and no Valkey is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from flockmq.config.load import DEFAULT_LISTENER
from flockmq.config.sources import environment_name
from flockmq.config.values import Address
from flockmq.errors import UserError
from flockmq.management.view import NodePorts
from flockmq.processes import die_with_parent, how_it_ended, last_lines
from flockmq.redis.embedded import embedded_valkey
from flockmq.smoke_test import check_crossing

LOOPBACK: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 1.5
"""Time for the replicants to stop, and then for the cores. With Valkey it takes less than 5 s in total."""
LAST_LINES: Final = 8

OPTIONS: Final = {"--listen HOST:PORT": "--port P", "--management HOST:PORT": "--management-port P"}
"""Option in a node's error message → option of `flockmq dev` to show instead."""


class NodeFailed(UserError):
    """A node exited, or didn't become ready. The command exits with the node's exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code or 1


class DevNode(msgspec.Struct, eq=False):
    """The process of one node, and its ports once it is ready."""

    name: str
    role: str
    log: Path
    process: Process
    ready_pipe: asyncio.StreamReader
    ports: NodePorts | None = None

    def last_lines(self) -> list[str]:
        """The last lines of its log."""
        return last_lines(self.log, LAST_LINES)


async def run(
    *, cores: int, replicants: int, mqtt_port: int, management_port: int, redis_url: str | None, once: bool
) -> int:
    """Run the cluster until cancelled, or, with `once`, until a message has crossed it. Returns the exit code."""
    nodes: list[DevNode] = []
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flockmq-dev-")))
        if redis_url is None:
            redis_url = (await stack.enter_async_context(embedded_valkey(None))).url
        shared = shared_settings(redis_url)
        await stack.enter_async_context(_cluster(nodes, folder, cores, replicants, mqtt_port, management_port, shared))
        _print(*table(nodes))
        if not await _show_crossing(nodes):
            return 1
        if not once:
            _print(
                "",
                "Anonymous clients are allowed: this is for trying things out, and listens on 127.0.0.1 only.",
                f"Logs: {folder}/*.log. Press Ctrl-C to stop.",
            )
            return await _watch(nodes)
    return int(any(_failed_to_stop(node) for node in nodes))


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
    nodes: list[DevNode],
    folder: Path,
    cores: int,
    replicants: int,
    mqtt_port: int,
    management_port: int,
    shared: dict[str, str],
) -> AsyncIterator[None]:
    """Start all nodes, and append them to `nodes`. Inside the block all of them are ready."""

    async def start(role: str, number: int, mqtt: str) -> DevNode:
        own = {
            "role": role,
            "node.name": f"{role}-{number}",
            "node.data_dir": str(folder / f"{role}-{number}"),
            DEFAULT_LISTENER: mqtt,
            "management.listen": str(Address(LOOPBACK, management_port and management_port + len(nodes))),
        }
        node = await _start(own["node.name"], role, folder / f"{own['node.name']}.log", {**shared, **own})
        nodes.append(node)
        return node

    try:
        first = await start("core", 1, "")
        await _wait_ready([first])
        assert first.ports is not None
        shared["cluster.seeds"] = f"{LOOPBACK}:{first.ports.link}"
        for number in range(2, cores + 1):
            await start("core", number, "")
        for number in range(1, replicants + 1):
            await start("replicant", number, str(Address(LOOPBACK, mqtt_port and mqtt_port + number - 1)))
        await _wait_ready(nodes[1:])
        yield
    finally:
        await _stop([node for node in nodes if node.role == "replicant"])
        await _stop([node for node in nodes if node.role == "core"])


async def _start(name: str, role: str, log: Path, settings: dict[str, str]) -> DevNode:
    read_fd, write_fd = os.pipe()
    ready_pipe = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(ready_pipe), os.fdopen(read_fd, "rb", buffering=0)
    )
    environment = os.environ | {environment_name(path): value for path, value in settings.items()}
    try:
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "flockmq", "run", "--ready-fd", str(write_fd)),
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(write_fd,),
                preexec_fn=die_with_parent(),
                start_new_session=True,  # so that Ctrl-C signals only this process, which stops the nodes in order
            )
    finally:
        os.close(write_fd)
    return DevNode(name, role, log, process, ready_pipe)


async def _wait_ready(nodes: Iterable[DevNode]) -> None:
    """Wait until all nodes are ready. Raises NodeFailed if one exits, or takes too long."""
    waiting = {asyncio.ensure_future(node.ready_pipe.readline()): node for node in nodes}
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            for line, node in waiting.items():
                if not (ports := await line):
                    raise NodeFailed(await _exit_report(node), await node.process.wait())
                node.ports = msgspec.json.decode(ports, type=NodePorts)
    except TimeoutError:
        late = next(node for node in waiting.values() if node.ports is None)
        lines = "".join(f"\n  {line}" for line in late.last_lines())
        raise NodeFailed(
            f"{late.name} wasn't ready within {START_TIMEOUT_S:.0f} s; its last lines:{lines}", 1
        ) from None
    finally:
        for line in waiting:
            line.cancel()


async def _exit_report(node: DevNode) -> str:
    """Why a node exited: its own error line, or else the last lines of its log."""
    code = await node.process.wait()
    lines = node.last_lines()
    if lines and lines[-1].startswith("flockmq: error: "):
        line = lines[-1].removeprefix("flockmq: error: ")
        for theirs, ours in OPTIONS.items():
            line = line.replace(theirs, ours)
        return f"{node.name}: {line}"
    return f"{node.name} {how_it_ended(code)}; its last lines:" + "".join(f"\n  {line}" for line in lines)


async def _stop(nodes: Sequence[DevNode]) -> None:
    """Send SIGTERM to all nodes, then SIGKILL to those that take too long."""
    running = [node for node in nodes if node.process.returncode is None]
    for node in running:
        with contextlib.suppress(ProcessLookupError):
            node.process.terminate()
    if not running:
        return
    ends = [asyncio.ensure_future(node.process.wait()) for node in running]
    await asyncio.wait(ends, timeout=STOP_TIMEOUT_S)
    for node in running:
        if node.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                node.process.kill()
    await asyncio.wait(ends)
    for node in running:
        if _failed_to_stop(node):
            _print(await _exit_report(node))


def _failed_to_stop(node: DevNode) -> bool:
    """Whether the node exited with an error. A node that was killed because it took too long doesn't count."""
    return (node.process.returncode or 0) > 0


# --- output ---------------------------------------------------------------------------------------------------------


def table(nodes: Sequence[DevNode]) -> list[str]:
    """A table of all nodes' ports, as lines."""
    rows = [("node", "MQTT", "management (/readyz /metrics /api/v1/nodes)", "cluster link")]
    for node in nodes:
        assert node.ports is not None
        mqtt = str(Address(LOOPBACK, node.ports.mqtt)) if node.ports.mqtt else "-"
        rows.append((node.name, mqtt, f"http://{LOOPBACK}:{node.ports.management}", f"{LOOPBACK}:{node.ports.link}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


async def _show_crossing(nodes: Sequence[DevNode]) -> bool:
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


async def _watch(nodes: Sequence[DevNode]) -> int:
    """Report each node that exits. Returns 1 when none is left."""
    alive = {asyncio.ensure_future(node.process.wait()): node for node in nodes}
    while alive:
        ended, _ = await asyncio.wait(alive, return_when=asyncio.FIRST_COMPLETED)
        for end in ended:
            node = alive.pop(end)
            rest = f"{len(alive)} of {len(nodes)} nodes go on." if alive else "None is left."
            _print("", await _exit_report(node), rest)
    return 1


def _print(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)
