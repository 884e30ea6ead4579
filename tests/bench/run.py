"""Measure FlockMQ beside other brokers: `python tests/bench/run.py [--check] [--rounds N] [--shapes …] [--brokers …]`.

A round starts each broker in turn and takes it through all shapes, so that what drifts on the machine reaches all of
them alike. A whole run writes its figures into docs/bench.md and README.md; a run of a part only prints them. Exit
code 1: something the bench needs is missing, or with --check a bar was missed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from flockbench import bars, machine, report
from flockbench.brokers import Broker, Installed, started
from flockbench.client import Client, Sample, compiled, relay
from flockbench.errors import BenchError, Failed, Missing
from flockbench.ours import OURS, REPOSITORY
from flockbench.peers import PEERS
from flockbench.results import Results
from flockbench.shapes import SHAPES, Shape

OPEN_FILES: Final = 11_000
"""10,000 idle connections, and what a broker has open besides."""
RELAY: Final = "relay"
PAGES: Final = (DETAILS := REPOSITORY / "docs" / "bench.md", README := REPOSITORY / "README.md")
"""Where the figures of a whole run are kept."""


def main() -> int:
    options = _arguments()
    for page in PAGES if options.whole else ():
        report.find_block(page)  # a page that can't take the figures is better known before they are measured
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flockmq" / "bench"
    cache.mkdir(parents=True, exist_ok=True)
    load_before = os.getloadavg()[0]
    broker_core, client_core = machine.two_cores()
    machine.open_files_limit(OPEN_FILES)
    client = Client(compiled(cache), client_core, int(options.seconds * 1000), int(options.warmup * 1000))
    candidates = [broker for broker in (*OURS, *PEERS, relay(client.binary)) if broker.key in options.brokers]
    shapes = [shape for shape in SHAPES if shape.key in options.shapes]
    steady, idle = [shape for shape in shapes if not shape.idle], [shape for shape in shapes if shape.idle]
    installed, missing = _install(candidates, cache)

    results = Results()
    for number in range(options.rounds):
        for broker, it in installed.items():
            _say(f"round {number + 1} of {options.rounds}: {broker.title}")
            with _notes(results, broker, steady), started(it, broker_core) as running:
                for shape in steady:
                    with _notes(results, broker, [shape]):
                        _add(results, shape, broker, client.measure(shape, running))
    for broker, it in installed.items():
        for shape in idle:
            _say(f"memory: {broker.title}")
            with _notes(results, broker, [shape]), started(it, broker_core) as running:
                _add(results, shape, broker, client.measure_idle(shape, running, broker.idle_connections))

    verdicts = [bars.judge(bar, results) for bar in bars.BARS]
    columns = _columns(candidates, installed)
    setting = report.Setting(
        machine=machine.description(),
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        rounds=options.rounds,
        seconds=options.seconds,
        versions={broker.title: it.version for broker, it in installed.items() if broker.key != RELAY},
        missing=missing,
        load_before=load_before,
    )
    full = report.full(results, shapes, columns, setting, verdicts)
    print(full)
    if options.whole:
        report.replace_block(DETAILS, full)
        report.replace_block(README, report.short(results, shapes, columns, setting))
    return 1 if options.check and not all(verdict.passed for verdict in verdicts) else 0


def _arguments() -> argparse.Namespace:
    brokers = [broker.key for broker in (*OURS, *PEERS)] + [RELAY]
    shapes = [shape.key for shape in SHAPES]
    parser = argparse.ArgumentParser(description="Measure FlockMQ beside other brokers on this machine.")
    parser.add_argument("--rounds", type=int, default=3, help="medians are taken over them (default: 3)")
    parser.add_argument("--seconds", type=float, default=1.0, help="measured for each figure (default: 1)")
    parser.add_argument("--warmup", type=float, default=0.3, help="seconds before them (default: 0.3)")
    parser.add_argument("--brokers", nargs="+", choices=brokers, default=brokers, help="(default: all)")
    parser.add_argument("--shapes", nargs="+", choices=shapes, default=shapes, help="(default: all)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    options = parser.parse_args()
    options.whole = options.brokers == brokers and options.shapes == shapes
    return options


def _install(brokers: Sequence[Broker], cache: Path) -> tuple[dict[Broker, Installed], dict[str, str]]:
    """Those that can be had, and why the others can't, by key."""
    installed: dict[Broker, Installed] = {}
    missing: dict[str, str] = {}
    for broker in brokers:
        try:
            _say(f"installing {broker.title}")
            installed[broker] = broker.install(cache)
        except Missing as why:
            _say(f"{broker.title} is missing: {why}")
            missing[broker.key] = str(why)
    return installed, missing


@contextlib.contextmanager
def _notes(results: Results, broker: Broker, shapes: Sequence[Shape]) -> Iterator[None]:
    """What fails in the block leaves the cells of these shapes empty, and the run goes on."""
    try:
        yield
    except Failed as why:
        _say(f"  {broker.title} failed: {why}")
        results.failures |= {(shape.key, broker.key): str(why) for shape in shapes}


def _add(results: Results, shape: Shape, broker: Broker, sample: Sample) -> None:
    results.add(shape, broker.key, sample)
    _say(f"  {shape.key}: " + ", ".join(f"{key} {value:,g}" for key, value in sample.items()))


def _columns(candidates: Sequence[Broker], installed: Mapping[Broker, Installed]) -> report.Columns:
    keys = [broker.key for broker in installed]
    return report.Columns(
        ours=[broker.key for broker in OURS if broker.key in keys],
        peers=[broker.key for broker in PEERS if broker.key in keys],
        relay=[key for key in keys if key == RELAY],
        titles={broker.key: broker.title for broker in candidates},
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"bench: {error}")
