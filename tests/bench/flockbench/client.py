"""The load client: compiled once for its sources, run on its own core, its one line of JSON read."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flockbench.brokers import Broker, Installed, Launch, Running, pinned
from flockbench.errors import BenchError, Failed
from flockbench.machine import family, resident_bytes
from flockbench.shapes import Shape

SOURCES: Final = Path(__file__).resolve().parents[1] / "load"
FLAGS: Final = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
RUN_TIMEOUT_S: Final = 120.0

Sample = dict[str, float]
"""What the client printed, by key; `idle` gets `kib` from the runner."""


@dataclass(frozen=True)
class Client:
    """The compiled client, and the core it runs on."""

    binary: Path
    core: int
    duration_ms: int
    warmup_ms: int

    def measure(self, shape: Shape, broker: Running) -> Sample:
        """Run one shape that takes its time. Raises Failed with the client's own words."""
        times = ("--duration-ms", str(self.duration_ms), "--warmup-ms", str(self.warmup_ms))
        with self._start((*shape.arguments, *times), broker) as process:
            return self._result(process)

    def measure_idle(self, shape: Shape, broker: Running, connections: int) -> Sample:
        """Resident memory of the broker's whole family of processes, with the connections less without them."""
        before = resident_bytes(family(broker.pid))
        with self._start((*shape.arguments, "--connections", str(connections)), broker) as process:
            assert process.stdout is not None
            line = process.stdout.readline()  # all connections stand, or the client failed; closing stdin ends them
            after = resident_bytes(family(broker.pid))
            sample = self._result(process, line)
        return sample | {"kib": (after - before) / connections / 1024}

    def _start(self, arguments: tuple[str, ...], broker: Running) -> subprocess.Popen[str]:
        return subprocess.Popen(
            pinned(self.core, (str(self.binary), *arguments, "--port", str(broker.port))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _result(self, process: subprocess.Popen[str], line: str = "") -> Sample:
        try:
            rest, errors = process.communicate(timeout=RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failed(f"the client didn't end within {RUN_TIMEOUT_S:.0f} s") from None
        if process.returncode:
            raise Failed(errors.strip() or f"the client ended with status {process.returncode}")
        sample: Sample = json.loads(line or rest)
        return sample


def compiled(cache: Path) -> Path:
    """The client's binary, made by `cc` when its sources have changed."""
    sources = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    binary = cache / f"load-{digest}"
    if binary.exists():
        return binary
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = binary.with_suffix(".unfinished")
    units = [str(path) for path in sources if path.suffix == ".c"]
    try:
        done = subprocess.run(
            ["cc", *FLAGS, "-o", str(unfinished), *units], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise BenchError("the load client is written in C and there is no `cc` here: install a C compiler") from None
    if done.returncode:
        raise BenchError(f"the load client doesn't compile:\n{done.stderr}")
    return unfinished.rename(binary)


def relay(binary: Path) -> Broker:
    """The client's own ceiling, as if it were a broker: see `../load/relay.c`."""
    launch: Callable[[int, int], Launch] = lambda port, _: Launch((str(binary), "relay", "--port", str(port)))  # noqa: E731
    return Broker("relay", "bare relay", lambda _: Installed("no broker: it copies bytes", launch))
