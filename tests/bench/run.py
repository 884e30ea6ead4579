"""Measure FlockMQ beside other brokers: `python tests/bench/run.py [--quick] [--check] [--brokers …] [--shapes …]`.

A round starts each broker in turn and takes it through all shapes, so that what drifts on the machine reaches all of
them alike; a peer that was far behind in a row isn't measured again there. With `--before COMMIT` FlockMQ as it was
then is a peer: `--before HEAD~1 --brokers compiled` shows what a change costs. A whole run writes its figures into
docs/bench.md, docs/bench-*.svg and README.md; any other only prints them. Exit code 1: something the bench needs is
missing, or with --check a goal was missed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from flockbench import alone, goals, lasting, log, machine, plots, report
from flockbench.brokers import Broker, Installed, Site, free_site, started
from flockbench.errors import BenchError, Failed, Missing
from flockbench.load import Load, Sample, compiled_fleet
from flockbench.ours import BEFORE, OURS, REPOSITORY, before, stage
from flockbench.peers import PEERS
from flockbench.results import Results
from flockbench.shapes import SHAPES, Shape

OPEN_FILES: Final = 15_000
"""10,000 idle connections, and what a broker has open besides."""
DOCS: Final = REPOSITORY / "docs"
PAGES: Final = (DETAILS := DOCS / "bench.md", README := REPOSITORY / "README.md")
"""Where the figures of a whole run are kept."""
ALONE: Final = (alone.ALONE, log.LOG, lasting.LASTING)
"""What FlockMQ is held to by itself."""
OUR_KEYS: Final = [broker.key for broker in OURS]
PEER_KEYS: Final = [BEFORE, *(broker.key for broker in PEERS)]


def main() -> int:
    options = _arguments()
    for page in PAGES if options.whole else ():
        report.find_block(page)  # a page that can't take the figures is better known before they are measured
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flockmq" / "bench"
    cache.mkdir(parents=True, exist_ok=True)
    load_before = os.getloadavg()[0]
    broker_core, load_core = machine.two_cores()
    machine.open_files_limit(OPEN_FILES)
    files = machine.certificate(cache)
    earlier = [before(options.before)] if options.before else []
    candidates = [*earlier, *(broker for broker in (*OURS, *PEERS) if broker.key in options.brokers)]
    shapes = [shape.shortened() if options.quick else shape for shape in SHAPES if shape.key in options.shapes]
    installed, missing = _install(candidates, cache)

    started_at = time.monotonic()
    run = _Run(
        Load(load_core, options.seconds, options.warmup, stage(cache, "interpreted"), compiled_fleet(cache)),
        broker_core,
        lambda: free_site(*files),
        cache,
    )
    run.deadline = started_at + options.minutes * 60
    os.sched_setaffinity(0, {load_core})  # what this process does itself is the load's work too
    repeated, once = [shape for shape in shapes if not shape.once], [shape for shape in shapes if shape.once]
    run.round(1, installed, repeated)
    for broker, it in installed.items():
        for shape in once:
            run.alone(broker, it, shape)
    for shape in ALONE:
        if shape.key in options.shapes:
            shapes.append(shape)
            for broker in installed:
                if broker.key == goals.SUBJECT:
                    run.by_itself(broker, shape, options.quick)
    for number in range(2, options.rounds + 1):
        run.round(number, installed, repeated)

    columns = _columns(candidates, installed)
    setting = report.Setting(
        machine=machine.description(),
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        rounds=options.rounds,
        seconds=options.seconds,
        minutes=(time.monotonic() - started_at) / 60,
        versions={broker.title: it.version for broker, it in installed.items()},
        missing=missing,
        load_before=load_before,
    )
    verdicts = [goals.judge(goal, run.results, shapes, columns.peers) for goal in options.goals]
    full = report.full(run.results, shapes, columns, setting, verdicts)
    print(full)
    if options.whole:
        report.replace_block(DETAILS, full)
        report.replace_block(README, report.short(run.results, shapes, columns, setting))
        for name, picture in plots.pictures(run.results, shapes, columns).items():
            (DOCS / name).write_text(picture)
    return 1 if options.check and not all(verdict.met for verdict in verdicts) else 0


class _Run:
    """Fills the results; what fails leaves its cells empty, and the run goes on."""

    def __init__(self, load: Load, broker_core: int, site: Callable[[], Site], cache: Path) -> None:
        self.results = Results()
        self.deadline = 0.0
        """From then on no further round is begun, nor gone on with."""
        self._load = load
        self._core = broker_core
        self._site = site
        self._cache = cache

    def round(self, number: int, installed: Mapping[Broker, Installed], shapes: Sequence[Shape]) -> None:
        """Every broker in turn through every shape; from the second round on only those that contend in it."""
        for broker, it in installed.items():
            todo = [shape for shape in shapes if number == 1 or self._contends(shape, broker)]
            if not todo or (number > 1 and time.monotonic() > self.deadline):
                continue
            _say(f"round {number}: {broker.title}")
            here = [shape for shape in todo if shape.way not in it.apart]
            with self._notes(broker, here), started(it.launch, self._site(), self._core) as running:
                for shape in here:
                    if number == 1 or time.monotonic() < self.deadline:
                        with self._notes(broker, [shape]):
                            self._add(shape, broker, self._load.measure(shape, it, running))
            for shape in todo:
                if shape not in here:
                    self.alone(broker, it, shape)

    def alone(self, broker: Broker, it: Installed, shape: Shape) -> None:
        """One shape on a broker, or a cluster of two, started for it."""
        with self._notes(broker, [shape]):
            if shape.way == "cluster" and shape.way not in it.apart:
                raise Failed("no cluster is set up here")
            if shape.after and not self._contends(shape.after, broker):
                raise Failed(f"far behind in “{shape.after.metrics[0].title}”, so not measured here")
            _say(f"{shape.key}: {broker.title}")
            site = self._site()
            ports = {"cluster": (site.mqtt, site.mqtt + 1), "mqtts": (site.tls,)}.get(shape.way, ())
            with started(it.apart.get(shape.way, it.launch), site, self._core, ports) as running:
                self._add(shape, broker, self._load.measure(shape, it, running))

    def by_itself(self, broker: Broker, shape: Shape, quick: bool) -> None:
        _say(f"by itself: {broker.title}")
        sample: Sample = {}
        try:
            for part in self._parts(broker, shape, quick):
                sample |= part
        except (Failed, Missing) as why:
            _say(f"  failed: {why}")
            self.results.notes.append(f"{broker.title} by itself: {why}.")
        self._add(shape, broker, sample)

    def _parts(self, broker: Broker, shape: Shape, quick: bool) -> Iterator[Sample]:
        core, load, cache = self._core, self._load, self._cache
        if shape is log.LOG:
            return log.measure(broker.key, cache, (core, load.core), self._site, quick)
        if shape is lasting.LASTING:
            return lasting.measure(load, stage(cache, broker.key), core, self._site, quick)
        return alone.measure(broker.key, cache, core, self._site, quick)

    def _contends(self, shape: Shape, broker: Broker) -> bool:
        peers = [key for key in PEER_KEYS if (shape.key, key) in self.results.samples]
        return broker.key in OUR_KEYS or self.results.contends(shape, broker.key, peers)

    @contextlib.contextmanager
    def _notes(self, broker: Broker, shapes: Sequence[Shape]) -> Iterator[None]:
        try:
            yield
        except Failed as why:
            _say(f"  {broker.title} failed: {why}")
            self.results.failures |= {(shape.key, broker.key): str(why) for shape in shapes}

    def _add(self, shape: Shape, broker: Broker, sample: Sample) -> None:
        self.results.add(shape, broker.key, sample)
        _say(f"  {shape.key}: " + ", ".join(f"{key} {value:,.4g}" for key, value in sample.items()))


def _arguments() -> argparse.Namespace:
    brokers, shapes = [broker.key for broker in (*OURS, *PEERS)], [shape.key for shape in (*SHAPES, *ALONE)]
    parser = argparse.ArgumentParser(description="Measure FlockMQ beside other brokers on this machine.")
    parser.add_argument("--quick", action="store_true", help="the main shapes, once, shortly: a look, not a figure")
    parser.add_argument("--rounds", type=int, default=3, help="medians are taken over them (default: 3)")
    parser.add_argument("--seconds", type=float, default=1.0, help="measured for each figure (default: 1)")
    parser.add_argument("--warmup", type=float, default=0.3, help="seconds before them (default: 0.3)")
    parser.add_argument("--minutes", type=float, default=23.0, help="no round is begun after them (default: 23)")
    parser.add_argument("--brokers", nargs="+", choices=brokers, default=brokers, help="(default: all)")
    parser.add_argument("--before", metavar="COMMIT", help="FlockMQ of then, compiled, is one of the peers")
    parser.add_argument("--shapes", nargs="+", choices=shapes, default=shapes, help="(default: all)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    options = parser.parse_args()
    options.whole = options.brokers == brokers and options.shapes == shapes and not (options.quick or options.before)
    if options.quick:
        options.rounds, options.seconds, options.warmup = 1, 0.4, 0.1
        quick = [shape.key for shape in (*SHAPES, *ALONE) if shape.quick]
        options.shapes = [key for key in options.shapes if key in quick]
    options.goals = [goal for goal in goals.GOALS if goal.shape in options.shapes]
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


def _columns(candidates: Sequence[Broker], installed: Mapping[Broker, Installed]) -> report.Columns:
    keys = [broker.key for broker in installed]
    return report.Columns(
        ours=[key for key in OUR_KEYS if key in keys],
        peers=[key for key in PEER_KEYS if key in keys],
        titles={broker.key: broker.title for broker in candidates},
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"bench: {error}")
