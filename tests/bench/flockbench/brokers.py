"""A broker as the runner sees it: installed once, started afresh for each round, pinned to its core, stopped by pid."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flockbench.errors import Failed

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0
PROBE_EVERY_S: Final = 0.05
ROW: Final = 16
ROW_BETWEEN: Final = (10_000, 30_000)
CONNECT: Final = b"\x10\x11\x00\x04MQTT\x04\x02\xff\xff\x00\x05probe"
CONNACK: Final = b"\x20\x02\x00\x00"


@dataclass(frozen=True)
class Site:
    """What a broker may use: free ports of 127.0.0.1, and the certificate that its TLS listener shows.

    From `mqtt` on a row of ports is free, one for each node of a cluster.
    """

    mqtt: int
    tls: int
    websocket: int
    others: tuple[int, ...]
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Launch:
    """How an installed broker is started: its files, relative to a fresh folder that it runs in, and its command."""

    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Installed:
    """A broker that can be started."""

    version: str
    launch: Callable[[Site], Launch]
    websocket_path: str = "/mqtt"
    apart: Mapping[str, Callable[[Site], Launch]] = field(default_factory=dict)
    """For the shapes of a way that `launch` doesn't serve: `cluster` is two nodes of one cluster, on the same core."""


@dataclass(frozen=True)
class Broker:
    """A column of the table. `install` gets the cache folder and raises Missing when the broker can't be had."""

    key: str
    title: str
    install: Callable[[Path], Installed]


@dataclass(frozen=True)
class Running:
    """A broker that answers: the process to look at, where it listens, and the folder it runs in."""

    pid: int
    site: Site
    folder: Path


@contextlib.contextmanager
def started(make: Callable[[Site], Launch], site: Site, core: int, ports: Sequence[int] = ()) -> Iterator[Running]:
    """Run it on `core`, in a fresh folder, until the block ends. When it begins a CONNECT was answered at all `ports`.

    It is a session of its own, all of which is ended: a broker's helpers don't outlive it.
    """
    with tempfile.TemporaryDirectory(prefix="flockmq-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        launch = make(site)
        for file, text in launch.files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                pinned(core, launch.command),
                cwd=folder,
                env=os.environ | launch.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            for port in ports or (site.mqtt,):
                _wait_until_it_answers(process, port, site, folder / "output")
            yield Running(process.pid, site, folder)
        finally:
            _stop(process)


def pinned(core: int, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command, run on one core together with all its children."""
    return ("taskset", "--cpu-list", str(core), *command)


def free_site(certificate: Path, key: Path) -> Site:
    """Ports of 127.0.0.1 that nobody listens on, different from one another."""
    with contextlib.ExitStack() as stack:

        def taken(port: int) -> int:
            each = stack.enter_context(socket.socket())
            each.bind(("127.0.0.1", port))
            bound: int = each.getsockname()[1]
            return bound

        first = _in_a_row(taken)
        tls, websocket, *others = (taken(0) for _ in range(8))
        return Site(first, tls, websocket, tuple(others), certificate, key)


def _in_a_row(taken: Callable[[int], int]) -> int:
    """The first of ROW ports, where nobody is given one who asks for any."""
    while True:
        first = random.randrange(*ROW_BETWEEN)
        with contextlib.suppress(OSError):
            for port in range(first, first + ROW):
                taken(port)
            return first


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, site: Site, output: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not _answers(port, port == site.tls):
        if process.poll() is not None:
            raise Failed(f"ended at once with status {process.returncode}: {_last_line(output)}")
        if time.monotonic() > deadline:
            raise Failed(f"answered no CONNECT for {START_TIMEOUT_S:.0f} s: {_last_line(output)}")
        time.sleep(PROBE_EVERY_S)


def _answers(port: int, tls: bool) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as plain:
            probe = _any_certificate().wrap_socket(plain) if tls else plain
            probe.sendall(CONNECT)
            return probe.recv(4) == CONNACK
    except OSError:
        return False


def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _last_line(output: Path) -> str:
    lines = output.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
