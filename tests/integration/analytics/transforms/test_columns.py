"""Each table has the columns that its transform names, of these types, also on a day of which there is no event."""

from datetime import UTC, datetime

import pytest
from chispa.schema_comparer import assert_schema_equality  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from flockmq_analytics.tables import TABLES, DayEvents
from pyspark_flockmq.events import STREAMS

from .frames import frame

COUNTS = "connects BIGINT, disconnects BIGINT, abnormal BIGINT, takeovers BIGINT, refused BIGINT"
LAGS = ", ".join(f"{share}_{unit} BIGINT" for unit in ("ms", "entries") for share in ("p50", "p95", "p99", "max"))
COLUMNS = {
    "minutes": f"minute TIMESTAMP, {COUNTS}",
    "hours": f"hour TIMESTAMP, node STRING, {COUNTS}, clients BIGINT, clients_sketch BINARY",
    "clients": "client_id STRING, connects BIGINT, disconnects BIGINT, takeovers BIGINT, most_in_an_hour BIGINT",
    "arrivals": "clients BIGINT, new BIGINT, gone BIGINT",
    "flapping": "client_id STRING, connects BIGINT, disconnects BIGINT, takeovers BIGINT, most_in_an_hour BIGINT",
    "lengths": "from_s BIGINT, sessions BIGINT",
    "length_percentiles": "sessions BIGINT, p50_ms BIGINT, p90_ms BIGINT, p99_ms BIGINT, max_ms BIGINT",
    "reasons": "ended_by STRING, reason_code INT, disconnects BIGINT",
    "storms": "`from` TIMESTAMP, `to` TIMESTAMP, connects BIGINT, busiest_minute BIGINT",
    "sources": "address STRING, reason_code INT, refusals BIGINT, client_ids BIGINT, first_at TIMESTAMP, "
    "last_at TIMESTAMP",
    "concurrency": "minute TIMESTAMP, node STRING, connections BIGINT, sessions BIGINT",
    "totals": "minute TIMESTAMP, connections BIGINT, most BIGINT, nodes BIGINT",
    "node_hours": "hour TIMESTAMP, node STRING, messages_in BIGINT, messages_out BIGINT, messages_dropped BIGINT, "
    "bytes_in BIGINT, bytes_out BIGINT, slot_queue_messages BIGINT, resend_messages BIGINT, store_queue_bytes BIGINT, "
    "loop_late_ms BIGINT",
    "lag_hours": f"hour TIMESTAMP, node STRING, shard STRING, samples BIGINT, {LAGS}, over BIGINT",
    "lag_shards": f"shard STRING, samples BIGINT, {LAGS}, over BIGINT",
    "bootstraps": "at TIMESTAMP, node STRING, shard STRING, bootstraps BIGINT, took_ms BIGINT, rows BIGINT",
    "spikes": "minute TIMESTAMP, shard STRING, max_ms BIGINT, nodes BIGINT, connects BIGINT, disconnects BIGINT, "
    "refused BIGINT",
    "losses": "stream STRING, node STRING, lost BIGINT, shed BIGINT, gaps BIGINT",
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, DataFrame]:
    """Of no event; nothing is computed."""
    ids = spark.createDataFrame([], "client_id STRING")
    streams = {name: frame(spark, name, []) for name in STREAMS}
    start, end = datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC)
    day = DayEvents(streams, known=ids, day_before=ids, start=start, end=end, objective_ms=1)
    made: dict[str, DataFrame] = {}
    for name, make in TABLES.items():
        made[name] = make(day, made.__getitem__)
    return made


def test_every_table_is_here() -> None:
    assert list(COLUMNS) == list(TABLES)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_table_has_its_columns(name: str, tables: dict[str, DataFrame]) -> None:
    assert_schema_equality(tables[name].schema, StructType.fromDDL(COLUMNS[name]), ignore_nullable=True)
