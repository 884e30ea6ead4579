"""The report as Markdown and JSON."""

import json

from flockmq_analytics.report import (
    MARKDOWN_ROWS_MAX,
    HourFigures,
    LagFigures,
    Percentiles,
    Report,
    StreamReading,
    to_json,
    to_markdown,
)


def report(hours: list[HourFigures] | None = None, reading: StreamReading | None = None) -> Report:
    return Report(
        "2026-11-20",
        "2026-11-21",
        "2026-11-21T02:17:00+00:00",
        hours=hours or [],
        lag=[LagFigures("route", 3, Percentiles(0, 1, 2, 3), Percentiles(4, 5, 6, 70))],
        streams={"lag": reading} if reading else {},
    )


def test_markdown_lines_its_tables_up() -> None:
    hours = [
        HourFigures("2026-11-20T00:00Z", "n", 1, 2, 0, 3),
        HourFigures("2026-11-20T01:00Z", "node-b", 1000, 2, 0, 3),
    ]
    assert (
        "| hour              | node   | connects | disconnects | abnormal | clients |\n"
        "|-------------------|--------|---------:|------------:|---------:|--------:|\n"
        "| 2026-11-20T00:00Z | n      |        1 |           2 |        0 |       3 |\n"
        "| 2026-11-20T01:00Z | node-b |     1000 |           2 |        0 |       3 |\n"
    ) in to_markdown(report(hours))


def test_lag_reads_in_entries_and_in_milliseconds() -> None:
    row = next(line for line in to_markdown(report()).splitlines() if "route" in line)
    assert row.replace("|", "").split() == ["route", *["3", "0", "1", "2", "3", "4", "5", "6", "70"]]


def test_an_empty_table_says_so() -> None:
    assert "## Connections by hour and node\n\nNone.\n" in to_markdown(report())


def test_markdown_is_bounded_and_says_where_the_rest_is() -> None:
    hours = [HourFigures("2026-11-20T00:00Z", f"node-{n}", 1, 1, 0, 1) for n in range(MARKDOWN_ROWS_MAX + 7)]
    text = to_markdown(report(hours))
    assert text.count("| 2026-11-20T00:00Z |") == MARKDOWN_ROWS_MAX
    assert "7 more rows are in report.json." in text


def test_a_nodes_name_cannot_break_the_table() -> None:
    text = to_markdown(report([HourFigures("2026-11-20T00:00Z", "a|b\n# c", 1, 1, 0, 1)]))
    assert "| a\\|b # c |" in text


def test_what_was_malformed_or_trimmed_is_told() -> None:
    text = to_markdown(report(reading=StreamReading(9, 4, 1, 2, "entry 5-0: bad")))
    assert "- lag: 9 events in the files, 2 malformed ones." in text
    assert "4 events were lost, 1 of them at their nodes" in text
    assert "One of the malformed: entry 5-0: bad." in text


def test_json_has_every_figure() -> None:
    read = json.loads(to_json(report()))
    assert read["lag"] == [
        {
            "shard": "route",
            "samples": 3,
            "lag_entries": {"p50": 0, "p90": 1, "p99": 2, "max": 3},
            "lag_ms": {"p50": 4, "p90": 5, "p99": 6, "max": 70},
        }
    ]
