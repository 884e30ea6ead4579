"""A core or a replicant of a lab, and what it says of itself over HTTP."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

import flockmq
from faults.host import Host, OnEnd
from faults.supervised import Command
from flockmq.telemetry.sample import Sample

MQTT, LINK, MANAGEMENT = 1883, 4370, 18083
DATA_BYTES: Final = 32 * 1024 * 1024
TESTS: Final = Path(__file__).resolve().parent.parent
NO_ANSWER: Final = (aiohttp.ClientError, OSError, TimeoutError)
LABEL_VALUE: Final = re.compile(r'="([^"]*)"')


class Release(NamedTuple):
    """What a node runs. `sources`: the folder with its package; `settings` are for this release only."""

    sources: Path
    settings: Mapping[str, str]


HERE: Final = Path(flockmq.__file__).resolve().parent.parent
"""This process' package: where a node runs the paths that it was found by may mean nothing."""
THIS: Final = Release(HERE, {"CLUSTER__VERSION_SETTLE": "0"})


class NodeHost(Host):
    """`settings`: of its environment, FLOCKMQ_ names without the FLOCKMQ_; a change counts from its next start."""

    def __init__(
        self, name: str, address: str, logs: Path, on_end: OnEnd, http: aiohttp.ClientSession, settings: dict[str, str]
    ) -> None:
        super().__init__(name, address, logs, DATA_BYTES, {name: self._program}, on_end)
        self.role = name.partition("-")[0]
        self.release = THIS
        """From its next start on."""
        self.runs = THIS
        """What was started last."""
        self._http = http
        self._settings = settings | {
            "ROLE": self.role,
            "NODE__NAME": name,
            "NODE__HOST": address,
            "NODE__DATA_DIR": str(self.data),
            "LISTENERS__TCP__DEFAULT__BIND": f"0.0.0.0:{MQTT}" if self.role == "replicant" else "",
            "CLUSTER__LISTEN": f"0.0.0.0:{LINK}",
            "MANAGEMENT__LISTEN": f"0.0.0.0:{MANAGEMENT}",
        }

    @property
    def url(self) -> str:
        """Of its management."""
        return f"http://{self.address}:{MANAGEMENT}"

    def configure(self, settings: Mapping[str, str]) -> None:
        self._settings.update(settings)

    def upgrade(self) -> None:
        self.release = THIS

    def gave_reason(self, code: int, last_words: str) -> bool:
        return code >= 0 and last_words.startswith("flockmq: error: ")

    async def get(self, path: str) -> Any:
        """Raises one of NO_ANSWER."""
        async with self._http.get(self.url + path) as answer:
            answer.raise_for_status()
            return await (answer.json() if path.startswith("/api") else answer.text())

    async def samples(self) -> list[Sample]:
        """What /metrics shows. Raises one of NO_ANSWER."""
        return [_sample(line) for line in (await self.get("/metrics")).splitlines() if not line.startswith("#")]

    def _program(self) -> Command:
        sources, own = self.runs = self.release
        path = os.pathsep.join(filter(None, (str(sources), os.environ.get("PYTHONPATH"), str(TESTS))))
        settings = {f"FLOCKMQ_{name}": value for name, value in (self._settings | dict(own)).items()}
        return Command([sys.executable, "-P", "-m", "faults.launch", "run"], settings | {"PYTHONPATH": path})


def _sample(line: str) -> Sample:
    series, _, value = line.rpartition(" ")
    name, _, labels = series.partition("{")
    return Sample(name, float(value), tuple(LABEL_VALUE.findall(labels)))
