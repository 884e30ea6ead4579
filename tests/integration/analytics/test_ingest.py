"""Draining the streams: each event once, whatever interrupts a run, and cores hear only of what is safe."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
import redis
from pyspark.sql import DataFrame, SparkSession

from flockmq_analytics import ingest, output
from flockmq_analytics.manifest import DataFile
from flockmq_analytics.storage import Storage
from integration.redis.servers import Clustered, Replicated, Server
from pyspark_flockmq import reading
from pyspark_flockmq.reading import COMMITTED_KEY
from pyspark_flockmq.servers import Primaries

from .runner import IN_S3
from .writing import add, add_first

NOON_MS = 1_795_176_000_000  # 2026-11-20T12:00:00Z
MIDNIGHT_MS = NOON_MS + 12 * 3_600_000
NOW = datetime(2026, 11, 20, 12, 5, tzinfo=UTC)


class Drain:
    """Runs ingests into one output, and counts what is in it."""

    def __init__(self, spark: SparkSession, source: ingest.Source, where: str) -> None:
        self.spark, self.source = spark, source
        self.target: Storage = output.storage(spark, where)

    def __call__(self) -> ingest.Ingested:
        with self.target.locked() as staging:
            return ingest.run(self.spark, self.source, self.target, staging, NOW)

    def rows(self, stream: str) -> Iterator[dict[str, object]]:
        for day, files in output.load(self.target).files.get(stream, {}).items():
            for file in files:
                with self.target.open(output.data_file(stream, day, file)) as source:
                    table = pq.ParquetFile(source).read()
                assert table.num_rows == file.rows
                for row in table.to_pylist():
                    yield row | {"day": day}

    def numbers(self, stream: str = "lag") -> Counter[object]:
        return Counter(row["number"] for row in self.rows(stream))


@pytest.fixture
def drain(spark: SparkSession, client: redis.Redis, url: str, password_file: str, where: str) -> Drain:
    return Drain(spark, ingest.Source({"url": url, "password_file": password_file}, releases=True), where)


anywhere = pytest.mark.parametrize("where", ["directory", IN_S3], indirect=True)


def lag(client: redis.Redis, *numbers: int) -> None:
    """A batch for each."""
    for number in numbers:
        add(client, "lag", NOON_MS + number, [{"at": NOON_MS + number, "shard": "route"}], first=number)


@anywhere
def test_each_run_adds_what_is_new_by_day(drain: Drain, client: redis.Redis) -> None:
    lag(client, 0, 1)
    add_first(client, "connections", NOON_MS, [[MIDNIGHT_MS - 1, "n", "connected", "c", 0, 5], "nonsense"])
    first = drain()
    assert (dict(first.events), first.malformed, first.warnings) == ({"connections": 1, "lag": 2}, 1, [])
    add_first(client, "connections", NOON_MS + 9, [[MIDNIGHT_MS, "n", "connected", "c", 0, 5]])
    assert dict(drain().events) == {"connections": 1}
    assert dict(drain().events) == {}
    assert [(row["client_id"], row["day"]) for row in drain.rows("connections")] == [
        ("c", "2026-11-20"),
        ("c", "2026-11-21"),
    ]
    assert drain.numbers() == {0: 1, 1: 1}
    assert client.hgetall(COMMITTED_KEY) == {
        b"connections": f"{NOON_MS + 9}-0".encode(),
        b"lag": f"{NOON_MS + 1}-0".encode(),
    }


@anywhere
def test_a_run_that_is_killed_anywhere_costs_and_doubles_nothing(
    drain: Drain, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each file has its name, before the manifest names it, and before Redis is told."""
    release, kind = reading.release, type(drain.target)
    publish, replace = kind.publish, kind.replace
    said: list[object] = []
    steps = iter(range(0))

    class Killed(BaseException):
        pass

    def live() -> None:
        if next(steps, None) is None:
            raise Killed

    def publishing(storage: Storage, staged: str, name: str) -> None:
        live()
        publish(storage, staged, name)

    def replacing(storage: Storage, staging: str, name: str, content: bytes) -> None:
        live()
        replace(storage, staging, name, content)

    def releasing(primaries: Primaries, ids: dict[str, str]) -> str:
        live()
        assert ids == output.load(drain.target).offsets, "what is released is committed"
        said.append(ids)
        return release(primaries, ids)

    monkeypatch.setattr(kind, "publish", publishing)
    monkeypatch.setattr(kind, "replace", replacing)
    monkeypatch.setattr(ingest, "release", releasing)
    number, step, kills = 0, 0, 0
    while not said:
        lag(client, number, number + 1)
        number += 2
        steps = iter(range(step))
        try:
            drain()
        except Killed:
            kills += 1
        step += 1
    assert kills >= 3
    assert drain.numbers() == dict.fromkeys(range(number), 1)


def test_what_cores_trimmed_because_it_is_safe_stays(drain: Drain, client: redis.Redis) -> None:
    lag(client, 0, 1, 2)
    drain()
    client.xtrim("flockmq:events:lag", maxlen=0, approximate=False)
    assert dict(drain().events) == {}
    lag(client, 3)
    drain()
    assert drain.numbers() == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_redis_that_came_back_older_is_not_read_twice(drain: Drain, client: redis.Redis) -> None:
    lag(client, 5, 6)
    drain()
    client.delete("flockmq:events:lag")
    lag(client, 5)
    ingested = drain()
    assert dict(ingested.events) == {}
    assert "before" in ingested.warnings[0]
    lag(client, 7)
    assert drain().warnings == []
    assert drain.numbers() == {5: 1, 6: 1, 7: 1}


def test_a_user_that_may_only_read_ingests_all_the_same(
    drain: Drain, client: redis.Redis, url: str, password_file: str
) -> None:
    password = Path(password_file).read_text().strip()
    rules = ["%R~flockmq:events:*", "+exists", "+xinfo|stream", "+xrange", "+xrevrange", "+info"]
    client.execute_command("ACL", "SETUSER", "reader", "reset", "on", f">{password}", *rules)
    told = {"url": url, "username": "reader", "password_file": password_file}
    drain.source = ingest.Source(told, releases=True)
    lag(client, 0)
    ingested = drain()
    assert dict(ingested.events) == {"lag": 1}
    assert "cores aren't told" in ingested.warnings[0]


def test_files_of_a_killed_run_are_not_read(drain: Drain, client: redis.Redis) -> None:
    lag(client, 0)
    drain()
    day = "2026-11-20"
    (kept,) = output.load(drain.target).of_day("lag", date.fromisoformat(day))
    content = drain.target.read(output.data_file("lag", day, kept))
    drain.target.write(output.data_file("lag", day, DataFile("00000002-0.parquet", 1)), content)
    assert drain.numbers() == {0: 1}


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[Replicated]:
    made = Replicated(tmp_path / "replicated")
    yield made
    made.stop()


@pytest.fixture
def clustered(tmp_path: Path) -> Iterator[Clustered]:
    made = Clustered(tmp_path / "clustered")
    yield made
    made.stop()


def client_of(server: Server) -> redis.Redis:
    return redis.Redis(port=server.port)


def test_a_failover_amid_a_run_costs_and_doubles_nothing(
    spark: SparkSession, replicated: Replicated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is fixed at one primary, the events are read at the next one, and so is what it has appended since."""
    source = ingest.Source({"url": replicated.url}, min_replicas=1, releases=True)
    drain = Drain(spark, source, str(tmp_path / "output"))
    old = replicated.primary
    with client_of(old) as client:
        lag(client, *range(100))
    by_date = ingest.by_date

    def fail_over(events: DataFrame) -> DataFrame:
        monkeypatch.undo()
        old.kill()
        with client_of(replicated.await_new_primary(old)) as client:
            lag(client, 100)
        return by_date(events)

    monkeypatch.setattr(ingest, "by_date", fail_over)
    assert dict(drain().events) == {"lag": 100}
    assert dict(drain().events) == {"lag": 1}
    assert drain.numbers() == dict.fromkeys(range(101), 1)
    new = replicated.primary
    assert new is not old
    assert new.call("HGET", COMMITTED_KEY, "lag") == f"{NOON_MS + 100}-0".encode()
    old.start()


def test_a_run_drains_all_masters_of_a_cluster(spark: SparkSession, clustered: Clustered, tmp_path: Path) -> None:
    drain = Drain(spark, ingest.Source({"url": clustered.url}, releases=True), str(tmp_path / "output"))
    of_connections, of_nodes, of_lag = clustered.masters
    with client_of(of_lag) as client:
        lag(client, 0, 1)
    with client_of(of_nodes) as client:
        add(client, "nodes", NOON_MS, [{"at": NOON_MS, "role": "core"}])
    with client_of(of_connections) as client:
        add(client, "connections", NOON_MS, [{"at": NOON_MS, "kind": "connected"}])
    assert dict(drain().events) == {"connections": 1, "lag": 2, "nodes": 1}
    assert dict(drain().events) == {}
    assert drain.numbers() == {0: 1, 1: 1}
