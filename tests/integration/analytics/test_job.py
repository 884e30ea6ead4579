"""The report's job on random events that were ingested: its figures against a naive count, and its files.

The events of two days are dealt to batches in the order of their arrival: delayed, across midnights, with clocks that
run ahead, and with malformed ones between. `EVENTS_SEED` in the environment picks another deal.
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
import redis
from pyspark.sql import SparkSession

from flockmq_analytics import ingest, job, output
from flockmq_analytics.days import Days
from flockmq_analytics.output import STAGING, locked
from flockmq_analytics.report import DayFigures, HourFigures, LagFigures, Percentiles, Report
from pyspark_flockmq.events import STREAMS

from .writing import add as add_batch
from .writing import add_first

SEED = int(os.environ.get("EVENTS_SEED", "20261120"))
DAYS = Days(date(2026, 11, 19), date(2026, 11, 20))
NOW = datetime(2026, 11, 20, 23, 17, tzinfo=UTC)
DAY_MS = 86_400_000
START_MS = int(DAYS.start.timestamp() * 1000)
END_MS = int(DAYS.end.timestamp() * 1000)
NODES = ("demo-core-0", "demo-replicant-a", "demo-replicant-b")
SHARDS = ("cluster", "route", "retained", "auth")


def connection_events(rng: random.Random, count: int) -> list[tuple[int, str, str, str, int, int]]:
    return [
        (
            rng.randrange(START_MS - DAY_MS // 12, END_MS + DAY_MS // 12),
            rng.choice(NODES),
            rng.choice(("connected", "disconnected")),
            f"device-{rng.randrange(200)}",
            rng.choice((0x00, 0x04, 0x80, 0x8E)),
            rng.choice((4, 5)),
        )
        for _ in range(count)
    ]


def lag_events(rng: random.Random, count: int) -> list[tuple[int, str, str, int, int]]:
    return [
        (
            rng.randrange(START_MS - DAY_MS // 12, END_MS + DAY_MS // 12),
            rng.choice(NODES),
            rng.choice(SHARDS),
            int(rng.expovariate(1 / 10)),
            int(rng.expovariate(1 / 200)),
        )
        for _ in range(count)
    ]


def append(client: redis.Redis, key: str, events: Iterable[tuple[object, ...]], rng: random.Random) -> int:
    """Append the events as their cores would, with malformed ones between; returns how many those are."""
    arrivals = []
    for event in events:
        at_ms = event[0]
        assert isinstance(at_ms, int)
        early = rng.random() < 0.1
        arrivals.append((at_ms + (-rng.randrange(60_000) if early else int(rng.expovariate(1 / 5_000))), event))
    arrivals.sort(key=lambda arrival: arrival[0])
    malformed = 0
    while arrivals:
        size = rng.randrange(1, 40)
        batch, arrivals = arrivals[:size], arrivals[size:]
        entry_ms = batch[-1][0]
        packed: list[object] = [list(event) for _, event in batch]
        if rng.random() < 0.1:
            packed.insert(rng.randrange(len(packed) + 1), "nonsense")
            malformed += 1
        client.xadd(key, {"events": msgspec.msgpack.encode(packed)}, id=f"{entry_ms}-*")
        if rng.random() < 0.05:
            client.xadd(key, {"events": b"\xc1"}, id=f"{entry_ms}-*")
            malformed += 1
    return malformed


def within(event: tuple[object, ...], start_ms: int = START_MS, end_ms: int = END_MS) -> bool:
    at_ms = event[0]
    assert isinstance(at_ms, int)
    return start_ms <= at_ms < end_ms


def naive_connections(
    events: list[tuple[int, str, str, str, int, int]],
) -> tuple[list[DayFigures], list[HourFigures]]:
    counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    clients: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for at_ms, node, kind, client_id, reason_code, _ in filter(within, events):
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        for key in ((f"{at:%Y-%m-%d}",), (f"{at:%Y-%m-%dT%H}:00Z", node)):
            counts[key][kind] += 1
            counts[key]["abnormal"] += kind == "disconnected" and reason_code >= 0x80
            clients[key].add(client_id)

    def figures(key: tuple[str, ...]) -> tuple[int, int, int, int]:
        count = counts[key]
        return count["connected"], count["disconnected"], count["abnormal"], len(clients[key])

    days = [DayFigures(key[0], *figures(key)) for key in sorted(counts) if len(key) == 1]
    hours = [HourFigures(key[0], key[1], *figures(key)) for key in sorted(counts) if len(key) == 2]
    return days, hours


def naive_percentiles(samples: list[int]) -> Percentiles:
    ranked = sorted(samples)
    p50, p90, p99 = (ranked[(len(ranked) * percent + 99) // 100 - 1] for percent in (50, 90, 99))
    return Percentiles(p50, p90, p99, ranked[-1])


def naive_lag(events: list[tuple[int, str, str, int, int]]) -> list[LagFigures]:
    samples: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for _, _, shard, lag_entries, lag_ms in filter(within, events):
        samples[shard].append((lag_entries, lag_ms))
    return [
        LagFigures(shard, len(pairs), *(naive_percentiles(list(column)) for column in zip(*pairs, strict=True)))
        for shard, pairs in sorted(samples.items())
    ]


class Runner:
    """Ingests into one output directory, and runs the job there."""

    def __init__(self, spark: SparkSession, url: str, password_file: str, target: Path) -> None:
        self.spark, self.output = spark, target
        self.source = ingest.Source(url, password_file)

    def ingest(self) -> None:
        with locked(self.output) as staging:
            ingest.run(self.spark, self.source, self.output, staging, NOW)

    def __call__(self, days: Days = DAYS, keep_days: int = 90) -> Report:
        self.ingest()
        with locked(self.output) as staging:
            return job.run(self.spark, job.Job(self.output, days, keep_days), staging, NOW)

    def files(self, stream: str, day: date) -> list[Path]:
        return [
            output.data_file(self.output, stream, str(day), file)
            for file in output.load(self.output).of_day(stream, day)
        ]

    def rows(self, stream: str, day: date) -> list[dict[str, object]]:
        return [row for file in self.files(stream, day) for row in pq.ParquetFile(file).read().to_pylist()]


@pytest.fixture
def run(spark: SparkSession, client: redis.Redis, url: str, password_file: str, tmp_path: Path) -> Runner:
    return Runner(spark, url, password_file, tmp_path / "output")


def test_the_figures_equal_a_naive_count(run: Runner, client: redis.Redis) -> None:
    rng = random.Random(SEED)
    connections, lag = connection_events(rng, 4_000), lag_events(rng, 4_000)
    malformed = {
        "connections": append(client, STREAMS["connections"].key, connections, rng),
        "lag": append(client, STREAMS["lag"].key, lag, rng),
    }
    report = run()
    days, hours = naive_connections(connections)
    assert report.days == days
    assert report.hours == hours
    assert len(hours) == 48 * len(NODES)
    assert report.lag == naive_lag(lag)
    assert {name: reading.malformed for name, reading in report.streams.items()} == {
        "refusals": 0,
        "nodes": 0,
    } | malformed
    assert all(count > 0 for count in malformed.values())
    for stream, events in (("connections", connections), ("lag", lag)):
        wanted: Counter[object] = Counter(event for event in events if within(event))
        found: Counter[object] = Counter()
        for day in DAYS.each():
            columns = STREAMS[stream].first
            for row in run.rows(stream, day):
                at = row["at"]
                assert isinstance(at, datetime)
                assert at.date() == day
                row["at"] = round(at.timestamp() * 1000)
                found[tuple(row[name] for name in columns)] += 1
        assert found == wanted
    assert json.loads((run.output / "report.json").read_text()) == asdict(report)
    assert (run.output / "report.md").read_text().startswith("# FlockMQ report, 2026-11-19 to 2026-11-20 (UTC)\n")


def lag_at(day: date, hour: int, entries: int) -> tuple[object, ...]:
    at = datetime(day.year, day.month, day.day, hour, tzinfo=UTC)
    return int(at.timestamp() * 1000), "n", "route", entries, 0


def add(client: redis.Redis, *events: tuple[object, ...], late_ms: int = 100) -> None:
    at_ms = events[-1][0]
    assert isinstance(at_ms, int)
    add_first(client, "lag", at_ms + late_ms, events)


def test_what_comes_late_is_added_to_its_day(run: Runner, client: redis.Redis) -> None:
    """Nothing is doubled, a day that is over becomes one file, and what the stream has lost stays."""
    first, second = DAYS.each()

    def samples(day: date) -> list[int]:
        return [int(str(row["lag_entries"])) for row in run.rows("lag", day)]

    add(client, lag_at(first, 2, 2), lag_at(first, 1, 1))
    run.ingest()
    add(client, lag_at(first, 23, 3), lag_at(second, 0, 4))  # one batch, two days
    add(client, lag_at(second, 5, 5))
    assert run().streams["lag"].events == 5
    assert (samples(first), sorted(samples(second))) == ([1, 2, 3], [4, 5])
    assert len(run.files("lag", first)) == 1

    client.xtrim(STREAMS["lag"].key, maxlen=0, approximate=False)
    add(client, lag_at(first, 6, 6), late_ms=44 * 3_600_000)
    report = run()
    assert (samples(first), sorted(samples(second))) == ([1, 2, 6, 3], [4, 5])
    assert report.lag == [LagFigures("route", 6, Percentiles(3, 6, 6, 6), Percentiles(0, 0, 0, 0))]
    assert not (run.output / STAGING).exists()


def test_what_was_lost_is_counted(run: Runner, client: redis.Redis) -> None:
    """Nodes of this release number their events; those of the first one write beside them."""
    noon_ms = START_MS + DAY_MS // 2
    add(client, lag_at(DAYS.first, 1, 1))
    for later, (first, shed, node) in enumerate(((0, 0, "a"), (2, 0, "a"), (9, 2, "a"), (4, 0, "b"), (6, 0, "b"))):
        events = [{"at": noon_ms, "shard": "route", "lag_ms": 0, "later": 1}] * 2
        add_batch(client, "lag", noon_ms + later, events, node=node, first=first, shed=shed)
    reading = run().streams["lag"]
    assert (reading.events, reading.lost, reading.shed) == (11, 5, 2)


def test_old_days_expire_but_not_those_asked_for(run: Runner, client: redis.Redis) -> None:
    old, asked = date(2026, 1, 1), date(2026, 1, 2)
    add(client, lag_at(old, 1, 1))
    add(client, lag_at(asked, 1, 2))
    run(Days(old, asked))
    run(Days(asked, asked), keep_days=30)
    assert list(output.load(run.output).files["lag"]) == [str(asked)]


def test_the_commands_print_what_came_of_them_and_nothing_else(
    client: redis.Redis, url: str, password_file: str, tmp_path: Path
) -> None:
    """Run as in a pod: the CronJobs' arguments, a working directory that can't be written."""
    today = datetime.now(UTC)
    add_first(client, "connections", 1, [[int(today.timestamp() * 1000), "n", "connected", "c", 0, 5]])
    target, scratch = tmp_path / "output", tmp_path / "scratch"
    scratch.mkdir()
    command = Path(sys.executable).with_name("flockmq-analytics")
    common = ["--output", str(target), "--memory", "512m", "--cores", "1"]
    sources = str(Path(job.__file__).parents[1])  # of this tree, wherever the command was installed from
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(scratch), "HOME": "/nonexistent", "PYTHONPATH": sources}
    said = []
    for arguments in (
        ["ingest", "--redis-url", url, "--password-file", password_file, "--release"],
        ["report", "--format", "json"],
    ):
        done = subprocess.run(
            [command, *arguments, *common], check=False, capture_output=True, text=True, cwd="/proc", env=environment
        )
        assert (done.stderr, done.returncode) == ("", 0)
        said.append(done.stdout)
    assert said[0] == "ingested 1 events (connections 1)\n"
    report = json.loads(said[1])
    assert [row["connects"] for row in report["days"]] == [1]
    assert report["first_day"] == str((today - timedelta(days=1)).date())
    assert sorted(path.name for path in target.iterdir()) == [
        ".lock",
        "connections",
        "manifest.json",
        "report.json",
        "report.md",
    ]
    assert list(scratch.iterdir()) == []
    assert client.hget("flockmq:events:committed", "connections") == b"1-0"
