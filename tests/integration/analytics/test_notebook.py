"""The notebook runs, cell by cell, on what the command line has written."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import redis
from pyspark.sql import SparkSession

from .runner import Runner
from .writing import add_an_hour

NOTEBOOK = Path(__file__).parents[3] / "analytics/notebook/day.ipynb"
DAY = date(2026, 11, 20)


def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text())["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def test_it_is_kept_without_what_came_of_it() -> None:
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in cells())


def test_it_shows_the_day_that_was_reported(
    spark: SparkSession,
    client: redis.Redis,
    url: str,
    password_file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    add_an_hour(client)
    (summary,) = Runner(spark, url, password_file, str(tmp_path))(DAY)
    monkeypatch.setenv("FLOCKMQ_OUTPUT", str(tmp_path))
    matplotlib.use("svg")
    seen: dict[str, Any] = {}
    for cell in cells():
        exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), seen)
    assert seen["summary"]["clients"] == seen["distinct"] == summary.clients == 12
    assert seen["connections"].count() == summary.connects + summary.disconnects
    assert max(row.connections for row in seen["totals"]) == summary.peak_connections == 118
    said = capsys.readouterr().out
    assert "2026-11-20 12:00:00" in said
    assert "a5" in said
