"""`spark.readStream.format("flockmq")` on real Valkeys: each event once, over batches, restarts and a failover."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from integration.redis.servers import Replicated, Server, until
from pyspark_flockmq import reading
from pyspark_flockmq.errors import RedisUnavailable
from pyspark_flockmq.options import parse_options
from pyspark_flockmq.stream_reader import FlockmqStreamReader, Offset

from .writing import add

NOON_MS = 1_795_176_000_000  # 2026-11-20T12:00:00Z
ALL = ReadAllAvailable()


def lag(client: redis.Redis, *numbers: int) -> None:
    for number in numbers:
        add(client, "lag", NOON_MS + number, [{"at": NOON_MS + number, "shard": "route"}], first=number)


def read(reader: FlockmqStreamReader, start: Offset, end: Offset) -> list[int]:
    """The events' numbers."""
    return [
        number
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for number in batch.column("number").to_pylist()
    ]


def test_a_query_that_is_run_again_reads_what_came_since(
    spark: SparkSession, client: redis.Redis, url: str, password_file: str, tmp_path: Path
) -> None:
    def run() -> list[int]:
        events = spark.readStream.format("flockmq").options(url=url, password_file=password_file, stream="lag").load()
        writing = events.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.trigger(availableNow=True).start(str(tmp_path / "events"))
        assert query.awaitTermination(240)
        return sorted(row["number"] for row in spark.read.parquet(str(tmp_path / "events")).collect())

    lag(client, 0, 1, 2)
    assert run() == [0, 1, 2]
    lag(client, 3, 4)
    assert run() == [0, 1, 2, 3, 4]


@pytest.fixture
def server_of_its_own(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path / "server")
    yield started
    started.stop()


def test_what_is_available_now_is_fixed_and_options_bound_it(server_of_its_own: Server) -> None:
    server = server_of_its_own
    ids = {"after": f"{NOON_MS}-0", "until": f"{NOON_MS + 4}-0"}
    with redis.Redis(port=server.port) as client:
        lag(client, 0, 1, 2)
        reader = FlockmqStreamReader(parse_options({"url": server.url, "stream": "lag", **ids}))
        start = reader.initialOffset()
        assert start == {"lag": ids["after"]}
        reader.prepareForTriggerAvailableNow()
        lag(client, 3, 4, 5)
        end = reader.latestOffset(start, ALL)
        assert read(reader, start, end) == [1, 2]
        assert reader.latestOffset(end, ALL) == end
        again = FlockmqStreamReader(parse_options({"url": server.url, "stream": "lag", **ids}))
        assert read(again, end, again.latestOffset(end, ALL)) == [3, 4]
        assert read(again, start, end) == [1, 2], "the same offsets are the same events"


def test_a_stream_that_is_empty_or_was_lost_has_nothing_new(server_of_its_own: Server) -> None:
    reader = FlockmqStreamReader(parse_options({"url": server_of_its_own.url, "stream": "lag"}))
    start = reader.initialOffset()
    assert start == {"lag": "0-0"}
    assert reader.latestOffset(start, ALL) == start
    assert list(reader.partitions(start, start)) == []
    known = {"lag": f"{NOON_MS}-0"}
    assert reader.latestOffset(known, ALL) == known
    with pytest.raises(RedisUnavailable, match=f"has no entry {NOON_MS}-0 of lag, which another one had"):
        reader.partitions(start, known)


def test_a_failover_costs_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replicated = Replicated(tmp_path / "replicated")
    try:
        old = replicated.primary
        reader = FlockmqStreamReader(parse_options({"url": replicated.url, "stream": "lag"}))
        with redis.Redis(port=old.port) as client:
            lag(client, *range(10))
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        old.kill()
        new = replicated.await_new_primary(old)
        (other,) = (server for server in replicated.servers if server not in (old, new))
        until(lambda: new.info("connected_slaves") == "1" and other.info("master_link_status") == "up")
        with redis.Redis(port=new.port) as client:
            assert read(reader, start, end) == list(range(10))
            lag(client, 10)
            after = reader.latestOffset(end, ALL)
            assert read(reader, end, after) == [10]
            other.signal(signal.SIGSTOP)
            lag(client, 11)
            monkeypatch.setattr(reading, "REPLICAS_WAIT_S", 0.0)
            assert reader.latestOffset(after, ALL) == after, "the other one could become the primary, and lacks it"
    finally:
        replicated.stop()
