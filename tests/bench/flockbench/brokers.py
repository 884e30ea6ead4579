"""A broker as the runner sees it: installed once, started afresh for each round, pinned to its core, stopped by pid."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flockbench.errors import Failed

START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0
PROBE_EVERY_S: Final = 0.05
CONNECT: Final = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x00\x00\x05probe"
CONNACK: Final = b"\x20\x02\x00\x00"


@dataclass(frozen=True)
class Launch:
    """How an installed broker is started: its files, relative to a fresh folder that it runs in, and its command."""

    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Installed:
    """A broker that can be started. `launch` gets the port for MQTT and a second free one."""

    version: str
    launch: Callable[[int, int], Launch]


@dataclass(frozen=True)
class Broker:
    """A column of the table. `install` gets the cache folder and raises Missing when the broker can't be had."""

    key: str
    title: str
    install: Callable[[Path], Installed]
    idle_connections: int = 10_000
    """Over how many the cost of one is taken; fewer for a broker that would need minutes."""


@dataclass(frozen=True)
class Running:
    """A broker that answers: the process to look at, and its port for MQTT on 127.0.0.1."""

    pid: int
    port: int


@contextlib.contextmanager
def started(installed: Installed, core: int) -> Iterator[Running]:
    """Run the broker on `core`, in a fresh folder, until the block ends. It has answered a CONNECT when it begins."""
    with tempfile.TemporaryDirectory(prefix="flockmq-bench-") as name:
        folder = Path(name)
        port, second_port = free_ports(2)
        launch = installed.launch(port, second_port)
        for file, text in launch.files.items():
            (folder / file).write_text(text)
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                pinned(core, launch.command),
                cwd=folder,
                env=os.environ | launch.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            _wait_until_it_answers(process, port, folder / "output")
            yield Running(process.pid, port)
        finally:
            _stop(process)


def pinned(core: int, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command, run on one core together with all its children."""
    return ("taskset", "--cpu-list", str(core), *command)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on, different from one another."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not _answers(port):
        if process.poll() is not None:
            raise Failed(f"ended at once with status {process.returncode}: {_last_line(output)}")
        if time.monotonic() > deadline:
            raise Failed(f"answered no CONNECT for {START_TIMEOUT_S:.0f} s: {_last_line(output)}")
        time.sleep(PROBE_EVERY_S)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as probe:
            probe.sendall(CONNECT)
            return probe.recv(4) == CONNACK
    except OSError:
        return False


def _last_line(output: Path) -> str:
    lines = output.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
