"""The load: `flockmq bench` in a process of its own on its own core; its line of JSON is the sample."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from flockbench.brokers import Installed, Running, pinned
from flockbench.errors import Failed
from flockbench.shapes import Shape

Sample = dict[str, float]
"""What `flockmq bench --json` printed."""


@dataclass(frozen=True)
class Load:
    """Where the load runs and how long it measures."""

    core: int
    seconds: float
    warmup: float
    environment: Mapping[str, str]
    """Of the FlockMQ whose `bench` is run."""

    def measure(self, shape: Shape, installed: Installed, running: Running) -> Sample:
        """Run one shape. Raises Failed with the load's own words."""
        measurement, *options = shape.arguments
        if measurement != "idle":
            options += ["--seconds", str(self.seconds), "--warmup", str(self.warmup)]
        if measurement != "latency":
            options += ["--pid", str(running.pid)]
        return self._run([measurement, *urls(shape, installed, running), *options, "--json"], shape.besides_s)

    def _run(self, arguments: list[str], besides_s: float) -> Sample:
        command = pinned(self.core, (sys.executable, "-m", "flockmq", "bench", *arguments))
        environment = os.environ | self.environment
        limit_s = self.seconds + besides_s
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
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
