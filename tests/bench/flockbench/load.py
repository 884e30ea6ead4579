"""The load: a process of its own on its own core, whose line of JSON is the sample.

It is `flockmq bench`, and where Python would be slower than the broker the program of fleet.c, compiled into the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flockbench.brokers import Installed, Running, pinned
from flockbench.errors import Failed
from flockbench.packages import step
from flockbench.shapes import Shape
from flockmq.bench import broker_usage

FLEET: Final = Path(__file__).with_name("fleet.c")
COMPILE: Final = ("cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")

Sample = dict[str, float]
"""What the load printed: figures by name."""


def compiled_fleet(cache: Path) -> Path:
    """The program of fleet.c, which is compiled when it has changed. Raises Missing."""
    program = cache / f"fleet-{hashlib.sha256(FLEET.read_bytes()).hexdigest()[:12]}"
    if not program.exists():
        unfinished = program.with_suffix(".unfinished")
        step([*COMPILE, "-o", str(unfinished), str(FLEET)])
        unfinished.rename(program)
    return program


@dataclass(frozen=True)
class Load:
    """Where the load runs and how long it measures."""

    core: int
    seconds: float
    warmup: float
    environment: Mapping[str, str]
    """Of the FlockMQ whose `bench` is run."""
    fleet: Path
    """The program of fleet.c."""

    def measure(self, shape: Shape, installed: Installed, running: Running) -> Sample:
        """Run one shape. Raises Failed with the load's own words."""
        if shape.program == "fleet":
            return self._fleet(shape, running)
        measurement, *options = shape.arguments
        if measurement != "idle":
            options += ["--seconds", str(self.seconds), "--warmup", str(self.warmup)]
        if measurement != "latency":
            options += ["--pid", str(running.pid)]
        program = (sys.executable, "-m", "flockmq", "bench")
        return self._run((*program, measurement, *urls(shape, installed, running), *options, "--json"), shape.besides_s)

    def _fleet(self, shape: Shape, running: Running) -> Sample:
        measurement, *options = shape.arguments
        options += ["seconds", str(self.seconds), "warmup", str(self.warmup)]
        options += [word for pid in broker_usage.family([running.pid]) for word in ("pid", str(pid))]
        sample = self._run((str(self.fleet), measurement, str(running.site.mqtt), *options), shape.besides_s)
        if sample["rate"]:
            sample["cpu_us"] = sample["broker_busy"] / sample["rate"] * 1e6
        return sample

    def _run(self, command: tuple[str, ...], besides_s: float) -> Sample:
        environment = os.environ | self.environment
        limit_s = self.seconds + besides_s
        try:
            done = subprocess.run(
                pinned(self.core, command),
                env=environment,
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"not done after {limit_s:.0f} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise Failed(said[-1].removeprefix("flockmq: error: ") if said else f"status {done.returncode}")
        sample: Sample = json.loads(done.stdout)
        return sample


def urls(shape: Shape, installed: Installed, running: Running) -> list[str]:
    """Where to publish, and where to subscribe if that is elsewhere."""
    site = running.site
    if shape.way == "mqtts":
        return [f"mqtts://127.0.0.1:{site.tls}", "--cafile", str(site.certificate)]
    if shape.way == "ws":
        return [f"ws://127.0.0.1:{site.websocket}{installed.websocket_path}"]
    if shape.way == "cluster":
        return [f"mqtt://127.0.0.1:{site.mqtt}", "--subscribe-at", f"mqtt://127.0.0.1:{site.mqtt + 1}", "--settle", "1"]
    return [f"mqtt://127.0.0.1:{site.mqtt}"]
