"""The report's job on random events that were ingested: its figures against a naive count, and its files.

The events of a day, and of some hours around it, are dealt to batches in the order of their arrival: delayed, across
midnights, with clocks that run ahead, and with malformed ones between. `EVENTS_SEED` in the environment picks another
deal.
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
import redis
from pyspark.sql import SparkSession

from flockmq_analytics import job, output
from flockmq_analytics.storage import STAGING
from flockmq_analytics.summary import Summary
from pyspark_flockmq.events import STREAMS

from .runner import IN_S3, Runner
from .writing import add as add_batch
from .writing import add_first

SEED = int(os.environ.get("EVENTS_SEED", "20261120"))
DAY, NEXT = date(2026, 11, 19), date(2026, 11, 20)
DAY_MS = 86_400_000
START_MS = int(datetime(2026, 11, 19, tzinfo=UTC).timestamp() * 1000)
END_MS = START_MS + DAY_MS
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


def naive_hours(events: Iterable[tuple[int, str, str, str, int, int]]) -> dict[tuple[datetime, str], tuple[int, ...]]:
    """Connects, disconnects, abnormal ones and distinct clients."""
    counts: dict[tuple[datetime, str], Counter[str]] = defaultdict(Counter)
    clients: dict[tuple[datetime, str], set[str]] = defaultdict(set)
    for at_ms, node, kind, client_id, reason_code, _ in events:
        key = datetime.fromtimestamp(at_ms / 1000, UTC).replace(minute=0, second=0, microsecond=0), node
        counts[key][kind] += 1
        counts[key]["abnormal"] += kind == "disconnected" and reason_code >= 0x80
        clients[key].add(client_id)
    kinds = "connected", "disconnected", "abnormal"
    return {key: (*(count[kind] for kind in kinds), len(clients[key])) for key, count in counts.items()}


def naive_lag(events: Iterable[tuple[int, str, str, int, int]]) -> dict[str, tuple[int, ...]]:
    """Samples and p50, p95, p99, max of the milliseconds, by nearest rank, of each shard."""
    samples: dict[str, list[int]] = defaultdict(list)
    for _, _, shard, _, lag_ms in events:
        samples[shard].append(lag_ms)
    ranked = {shard: sorted(values) for shard, values in samples.items()}
    return {
        shard: (len(values), *(values[(len(values) * share + 99) // 100 - 1] for share in (50, 95, 99, 100)))
        for shard, values in ranked.items()
    }


@pytest.fixture
def run(spark: SparkSession, client: redis.Redis, url: str, password_file: str, where: str) -> Runner:
    return Runner(spark, url, password_file, where)


@pytest.mark.parametrize("where", ["directory", IN_S3], indirect=True)
def test_the_figures_equal_a_naive_count(run: Runner, client: redis.Redis) -> None:
    rng = random.Random(SEED)
    connections, lag = connection_events(rng, 3_000), lag_events(rng, 3_000)
    malformed = {
        "connections": append(client, STREAMS["connections"].key, connections, rng),
        "lag": append(client, STREAMS["lag"].key, lag, rng),
    }
    (summary,) = run(DAY, now=datetime(2026, 11, 19, 23, 59, tzinfo=UTC))
    of_day, lag_of_day = list(filter(within, connections)), list(filter(within, lag))
    assert {
        (row["hour"], row["node"]): (row["connects"], row["disconnects"], row["abnormal"], row["clients"])
        for row in run.table(DAY, "hours")
    } == naive_hours(of_day)
    kinds = Counter(kind for _, _, kind, *_ in of_day)
    assert (summary.connects, summary.disconnects) == (kinds["connected"], kinds["disconnected"])
    minutes = run.table(DAY, "minutes")
    assert sum(row["connects"] + row["disconnects"] for row in minutes) == len(of_day)
    assert {row["client_id"] for row in run.table(DAY, "clients")} == {client_id for _, _, _, client_id, *_ in of_day}
    assert summary.clients == summary.new_clients == len({client_id for _, _, _, client_id, *_ in of_day})
    figures = {s: (one.samples, one.p50_ms, one.p95_ms, one.p99_ms, one.max_ms) for s, one in summary.lag.items()}
    assert figures == naive_lag(lag_of_day)
    assert summary.over_objective_s == 10 * sum(lag_ms > 200 for *_, lag_ms in lag_of_day)
    assert {name: count.malformed for name, count in summary.streams.items() if count.malformed} == malformed
    assert summary.streams["connections"].events == len(of_day)
    found: Counter[object] = Counter()
    for row in run.rows("connections", DAY):
        at = row["at"]
        assert isinstance(at, datetime)
        row["at"] = round(at.timestamp() * 1000)
        found[tuple(row[name] for name in STREAMS["connections"].first)] += 1
    assert found == Counter(of_day)
    folder = output.report(DAY)
    assert msgspec.json.decode(run.output.read(f"{folder}/summary.json"), type=Summary) == summary
    assert run.output.read(f"{folder}/report.html").count(b"<svg") == 3
    assert run.output.read(f"{folder}/_SUCCESS") == b""


def lag_at(day: date, hour: int, entries: int) -> tuple[object, ...]:
    at = datetime(day.year, day.month, day.day, hour, tzinfo=UTC)
    return int(at.timestamp() * 1000), "n", "route", entries, 0


def add(client: redis.Redis, *events: tuple[object, ...], late_ms: int = 100) -> None:
    at_ms = events[-1][0]
    assert isinstance(at_ms, int)
    add_first(client, "lag", at_ms + late_ms, events)


def test_a_day_is_reported_again_when_events_came_late(run: Runner, client: redis.Redis) -> None:
    """Nothing is doubled, a day that is over becomes one file, and what the stream has lost stays."""
    add(client, lag_at(DAY, 2, 2), lag_at(DAY, 1, 1))
    run.ingest()
    add(client, lag_at(DAY, 23, 3), lag_at(NEXT, 0, 4))  # one batch, two days
    assert [one.day for one in run()] == [str(DAY), str(NEXT)]
    assert [row["lag_entries"] for row in run.rows("lag", DAY)] == [1, 2, 3]
    assert len(run.files("lag", DAY)) == 1
    assert run.output.read("reports/latest/report.md").startswith(f"# FlockMQ report, {DAY}".encode())
    assert run() == []

    client.xtrim(STREAMS["lag"].key, maxlen=0, approximate=False)
    add(client, lag_at(DAY, 6, 6), late_ms=44 * 3_600_000)
    (summary,) = run()
    assert (summary.day, summary.streams["lag"].events) == (str(DAY), 4)
    assert [row["lag_entries"] for row in run.rows("lag", DAY)] == [1, 2, 6, 3]
    assert run.output.found(STAGING) == []


def test_what_was_lost_is_counted_and_clients_are_new_once(run: Runner, client: redis.Redis) -> None:
    """Nodes of this release number their events; those of the first one write beside them."""
    noon_ms = START_MS + DAY_MS // 2
    for later, (first, shed, node) in enumerate(((0, 0, "a"), (2, 0, "a"), (9, 2, "a"), (4, 0, "b"), (6, 0, "b"))):
        events = [{"at": noon_ms, "kind": "connected", "client_id": f"{node}{first}", "later": 1}] * 2
        add_batch(client, "connections", noon_ms + later, events, node=node, first=first, shed=shed)
    add_first(
        client, "connections", noon_ms + 9, [[noon_ms + DAY_MS, "n", "connected", who, 0, 5] for who in ("a2", "x")]
    )
    first_day, next_day = run()
    read = first_day.streams["connections"]
    assert (read.events, read.lost, read.shed) == (10, 5, 2)
    assert (first_day.clients, first_day.new_clients, first_day.gone_clients) == (5, 5, 0)
    assert (next_day.clients, next_day.new_clients, next_day.gone_clients) == (2, 1, 4)


def test_columns_that_an_older_file_lacks_are_null(run: Runner, client: redis.Redis) -> None:
    """As a release wrote it that didn't know them; it becomes one with the newer ones."""
    add(client, lag_at(DAY, 1, 1))
    run.ingest()
    (name,) = run.files("lag", DAY)
    path = Path(run.output.url(name))
    older = pq.read_table(path).drop_columns(["bootstraps", "bootstrap_ms", "bootstrap_rows", "unapplied", "replaying"])
    pq.write_table(older, path)
    at_ms = START_MS + DAY_MS // 2
    add_batch(client, "lag", at_ms, [{"at": at_ms, "shard": "route", "lag_entries": 2, "lag_ms": 0, "bootstraps": 3}])
    (summary,) = run(DAY)
    assert summary.streams["lag"].events == 2
    assert [(row["lag_entries"], row["bootstraps"]) for row in run.rows("lag", DAY)] == [(1, None), (2, 3)]
    assert len(run.files("lag", DAY)) == 1


def test_old_days_expire_but_not_those_asked_for(run: Runner, client: redis.Redis) -> None:
    old, asked = date(2026, 1, 1), date(2026, 1, 2)
    add(client, lag_at(old, 1, 1))
    add(client, lag_at(asked, 1, 2))
    run(asked, keep_days=30)
    assert list(output.load(run.output).files["lag"]) == [str(asked)]


def test_the_commands_print_what_came_of_them_and_nothing_else(
    client: redis.Redis, url: str, password_file: str, tmp_path: Path
) -> None:
    """Run as in a pod: the CronJobs' arguments, a working directory that can't be written."""
    today = datetime.now(UTC)
    add_first(client, "connections", 1, [[int(today.timestamp() * 1000), "n", "connected", "c", 0, 5]])
    target, scratch, headline = tmp_path / "output", tmp_path / "scratch", tmp_path / "termination-log"
    scratch.mkdir()
    command = Path(sys.executable).with_name("flockmq-analytics")
    common = ["--output", str(target), "--memory", "512m", "--cores", "1"]
    sources = str(Path(job.__file__).parents[1])  # of this tree, wherever the command was installed from
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(scratch), "HOME": "/nonexistent", "PYTHONPATH": sources}
    said = []
    for arguments in (
        ["ingest", "--redis-url", url, "--password-file", password_file, "--release"],
        ["report", "--format", "json", "--headline", str(headline)],
    ):
        done = subprocess.run(
            [command, *arguments, *common], check=False, capture_output=True, text=True, cwd="/proc", env=environment
        )
        assert (done.stderr, done.returncode) == ("", 0)
        said.append(done.stdout)
    assert said[0] == "ingested 1 events (connections 1)\n"
    summary = json.loads(said[1])
    assert (summary["day"], summary["connects"]) == (str(today.date()), 1)
    told = json.loads(headline.read_text())
    assert (told["day"], told["isOver"], told["clients"]) == (str(today.date()), False, 1)
    assert sorted(path.name for path in target.iterdir()) == [
        ".lock",
        "connections",
        "manifest.json",
        "reports",
    ]
    assert list(scratch.iterdir()) == []
    assert client.hget("flockmq:events:committed", "connections") == b"1-0"
