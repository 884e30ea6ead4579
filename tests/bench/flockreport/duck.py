"""The report's tables of connections, refusals, samples and gaps as DuckDB makes them, of the same files.

python duck.py FOLDER THREADS
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import duckdb

_COUNTS: Final = """
    count(*) FILTER (kind = 'connected') AS connects, count(*) FILTER (kind = 'disconnected') AS disconnects,
    count(*) FILTER (kind = 'disconnected' AND reason_code >= 128) AS abnormal,
    count(*) FILTER (kind = 'taken_over') AS takeovers, count(*) FILTER (kind = 'refused') AS refused
"""
_ALL: Final = """(SELECT "at", node, kind, client_id, reason_code FROM connections UNION ALL
    SELECT "at", node, 'refused', client_id, reason_code FROM refusals)"""
_ENDED: Final = "connections WHERE kind = 'disconnected' AND duration_ms IS NOT NULL"
_GAPS: Final = """
    WITH batches AS (
        SELECT node, incarnation, entry_id, min(number - position) AS first, max(number) AS last, max(shed) AS so_far
        FROM {stream} WHERE incarnation IS NOT NULL AND number IS NOT NULL GROUP BY ALL
    ), earlier AS (
        SELECT node, first - max(last + 1) OVER before AS lost, so_far - max(so_far) OVER before AS shed FROM batches
        WINDOW before AS (
            PARTITION BY node, incarnation ORDER BY first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
    ) SELECT node, sum(lost), sum(least(lost, shed)), count(*) FROM earlier WHERE lost > 0 GROUP BY node
"""
_RANKS: Final = ", ".join(f"approx_quantile({{0}}, {share})" for share in (0.5, 0.95, 0.99))

TABLES: Final = {
    "minutes": f"""SELECT date_trunc('minute', "at") AS minute, {_COUNTS} FROM {_ALL} GROUP BY minute
        ORDER BY minute""",
    "hours": f"""SELECT date_trunc('hour', "at") AS hour, node, {_COUNTS},
        approx_count_distinct(CASE WHEN kind <> 'refused' THEN client_id END) FROM {_ALL} GROUP BY ALL ORDER BY ALL""",
    "clients": """CREATE TABLE clients AS SELECT client_id, sum(connects) AS connects, sum(disconnects) AS disconnects,
        sum(takeovers) AS takeovers, max(connects) AS most_in_an_hour FROM (
            SELECT client_id, date_trunc('hour', "at") AS hour, count(*) FILTER (kind = 'connected') AS connects,
            count(*) FILTER (kind = 'disconnected') AS disconnects, count(*) FILTER (kind = 'taken_over') AS takeovers
            FROM connections WHERE client_id IS NOT NULL GROUP BY ALL) GROUP BY client_id""",
    "arrivals": "SELECT count(*) FROM clients",
    "flapping": """SELECT * FROM clients WHERE most_in_an_hour >= 10
        ORDER BY most_in_an_hour DESC, connects DESC LIMIT 100""",
    "lengths": f"""SELECT CASE WHEN duration_ms >= 86400000 THEN 86400 WHEN duration_ms >= 14400000 THEN 14400
        WHEN duration_ms >= 3600000 THEN 3600 WHEN duration_ms >= 600000 THEN 600 WHEN duration_ms >= 60000 THEN 60
        WHEN duration_ms >= 10000 THEN 10 WHEN duration_ms >= 1000 THEN 1 ELSE 0 END AS from_s, count(*)
        FROM {_ENDED} GROUP BY from_s""",
    "length_percentiles": f"SELECT count(*), {_RANKS.format('duration_ms')}, max(duration_ms) FROM {_ENDED}",
    "reasons": """SELECT ended_by, reason_code, count(*) AS disconnects FROM connections WHERE kind = 'disconnected'
        GROUP BY ALL ORDER BY disconnects DESC""",
    "sources": """SELECT address, reason_code, count(*) AS refused, approx_count_distinct(client_id),
        min("at"), max("at") FROM refusals GROUP BY ALL ORDER BY refused DESC LIMIT 100""",
    "concurrency": """SELECT date_trunc('minute', "at") AS minute, node, max_by(connections, "at"),
        max_by(connections, "at") + max_by(durable_sessions, "at") FROM nodes GROUP BY ALL ORDER BY minute, node""",
    "lag_hours": f"""SELECT date_trunc('hour', "at") AS hour, shard, node, count(*), {_RANKS.format('lag_ms')},
        max(lag_ms), {_RANKS.format('lag_entries')}, max(lag_entries) FROM lag GROUP BY hour, shard, node""",
    **{f"losses_{stream}": _GAPS.format(stream=stream) for stream in ("connections", "refusals", "lag", "nodes")},
    "events": "SELECT (SELECT count(*) FROM connections), (SELECT count(*) FROM refusals)",
}  # fmt: skip


def report(folder: Path, threads: int) -> None:
    in_utc = 'CAST("at" AS TIMESTAMP) AS "at"'
    with duckdb.connect(config={"threads": threads}) as database:
        for stream in ("connections", "refusals", "lag", "nodes"):
            files = f"read_parquet('{folder}/{stream}/*/*.parquet', union_by_name = true)"
            database.execute(f"CREATE VIEW {stream} AS SELECT * REPLACE ({in_utc}) FROM {files}")
        for sql in TABLES.values():
            database.execute(sql).fetchall()


if __name__ == "__main__":
    report(Path(sys.argv[1]), int(sys.argv[2]))
