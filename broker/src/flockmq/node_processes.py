"""Nodes as processes of this machine, each of them a `flockmq run`: for `flockmq dev` and `flockmq run --workers`.

A ready node writes its ports to a pipe (`--ready-fd`); if the pipe ends without a line, the node has ended.

Invariant: a node ends when the process that started it ends in any way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from flockmq.config.sources import environment_name
from flockmq.errors import UserError
from flockmq.management.view import NodePorts
from flockmq.processes import die_with_parent, how_it_ended, last_lines

START_TIMEOUT_S: Final = 60.0
LAST_LINES: Final = 8
NO_OPTIONS: Final[Mapping[str, str]] = {}


class NodeFailed(UserError):
    """A node ended, or didn't become ready. The command exits with the node's exit code. `is_told`: the node's own
    error is where this process writes its own."""

    def __init__(self, message: str, exit_code: int, *, is_told: bool = False) -> None:
        super().__init__(message)
        self.exit_code = exit_code or 1
        self.is_told = is_told


class NodeProcess(msgspec.Struct, eq=False):
    """The process of one node, and its ports once it is ready. It writes to `log`, or, if None, where this process
    does."""

    name: str
    role: str
    log: Path | None
    process: Process
    ready_pipe: asyncio.StreamReader
    ports: NodePorts | None = None

    def last_lines(self) -> list[str]:
        """The last lines of its log."""
        return [] if self.log is None else last_lines(self.log, LAST_LINES)

    def has_failed(self) -> bool:
        """Whether it ended with an error. A node that was killed because it took too long doesn't count."""
        return (self.process.returncode or 0) > 0


async def start(
    name: str, role: str, log: Path | None, settings: Mapping[str, str], arguments: Sequence[str] = ()
) -> NodeProcess:
    """Start a node. `settings` by key are passed in the environment, because other users can read command lines;
    `arguments` are other options of `flockmq run`."""
    read_fd, write_fd = os.pipe()
    ready_pipe = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(ready_pipe), os.fdopen(read_fd, "rb", buffering=0)
    )
    environment = os.environ | {environment_name(path): value for path, value in settings.items()}
    command = (sys.executable, "-P", "-m", "flockmq", "run", *arguments, "--ready-fd", str(write_fd))
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, write_fd)
        output = None if log is None else stack.enter_context(log.open("wb"))
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(write_fd,),
            preexec_fn=die_with_parent(),
            start_new_session=True,  # so that Ctrl-C signals only this process, which stops the nodes in order
        )
    return NodeProcess(name, role, log, process, ready_pipe)


async def wait_ready(nodes: Iterable[NodeProcess], options: Mapping[str, str] = NO_OPTIONS) -> None:
    """Wait until all nodes are ready. `options` as of `exit_report`. Raises NodeFailed if one ends, or takes too
    long."""
    waiting = {asyncio.ensure_future(node.ready_pipe.readline()): node for node in nodes}
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            for line, node in waiting.items():
                if not (ports := await line):
                    report = await exit_report(node, options)
                    raise NodeFailed(report, await node.process.wait(), is_told=node.log is None)
                node.ports = msgspec.json.decode(ports, type=NodePorts)
    except TimeoutError:
        late = next(node for node in waiting.values() if node.ports is None)
        said = "".join(f"\n  {line}" for line in late.last_lines())
        raise NodeFailed(
            f"{late.name} wasn't ready within {START_TIMEOUT_S:.0f} s{'; its last lines:' if said else ''}{said}", 1
        ) from None
    finally:
        for line in waiting:
            line.cancel()


async def stop(nodes: Sequence[NodeProcess], timeout_s: float, hurry: asyncio.Event | None = None) -> None:
    """Send SIGTERM to all nodes, a second one when `hurry` is set, and SIGKILL to those that take longer than
    `timeout_s`."""
    if not (ends := [asyncio.ensure_future(node.process.wait()) for node in nodes if node.process.returncode is None]):
        return
    hastening = asyncio.ensure_future(_hasten(nodes, hurry or asyncio.Event()))
    try:
        _signal(nodes, signal.SIGTERM)
        await asyncio.wait(ends, timeout=timeout_s)
    finally:
        hastening.cancel()
        _signal(nodes, signal.SIGKILL)
    await asyncio.wait(ends)


async def _hasten(nodes: Sequence[NodeProcess], hurry: asyncio.Event) -> None:
    await hurry.wait()
    _signal(nodes, signal.SIGTERM)


def _signal(nodes: Iterable[NodeProcess], number: signal.Signals) -> None:
    for node in nodes:
        if node.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                node.process.send_signal(number)


async def exit_report(node: NodeProcess, options: Mapping[str, str] = NO_OPTIONS) -> str:
    """Why a node ended: its own error line, or else the last lines of its log. `options`: option in such a line →
    option of this command to show instead."""
    code = await node.process.wait()
    lines = node.last_lines()
    if lines and lines[-1].startswith("flockmq: error: "):
        line = lines[-1].removeprefix("flockmq: error: ")
        for theirs, ours in options.items():
            line = line.replace(theirs, ours)
        return f"{node.name}: {line}"
    said = "".join(f"\n  {line}" for line in lines)
    return f"{node.name} {how_it_ended(code)}{'; its last lines:' if said else ''}{said}"
