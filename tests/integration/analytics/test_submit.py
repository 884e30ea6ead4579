"""Under spark-submit: its master holds, and the report of executors that are other processes is that of one process."""

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyspark
import pytest
import redis
from pyspark.sql import SparkSession

from flockmq_analytics import output
from flockmq_analytics.java import java_home
from flockmq_analytics.local_storage import LocalStorage
from flockmq_analytics.summary import Summary
from flockmq_analytics.tables import TABLES

from .runner import Runner
from .writing import add_an_hour

ROOT = Path(__file__).parents[3]
DAY = date(2026, 11, 20)


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """Spark as it is installed, but for its folder `work`, into which a cluster of its own writes."""
    home = tmp_path / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    return home


class Submit:
    """Runs the command line by spark-submit."""

    def __init__(self, home: Path, scratch: Path) -> None:
        scratch.mkdir()
        self.home = home
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(java_home(scratch)),
            "PYTHONPATH": str(Path(output.__file__).parents[1]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(scratch),
            "TMPDIR": str(scratch),
        }

    def __call__(self, master: str, settings: Sequence[str], *arguments: str) -> str:
        said = [part for setting in settings for part in ("--conf", setting)]
        done = subprocess.run(
            [self.home / "bin" / "spark-submit", "--master", master, *said, ROOT / "analytics/submit.py", *arguments],
            check=False,
            capture_output=True,
            text=True,
            env=self.environ,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout


def figures(where: LocalStorage) -> Summary:
    summary = msgspec.json.decode(where.read(f"{output.report(DAY)}/summary.json"), type=Summary)
    return msgspec.structs.replace(summary, made_at="")


def tables(runner: Runner) -> dict[str, list[dict[str, Any]]]:
    """Sketches of the same clients differ by the order in which these came."""
    found = {name: runner.table(DAY, name) for name in TABLES}
    return {name: sorted((_without_sketch(row) for row in rows), key=str) for name, rows in found.items()}


def _without_sketch(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "clients_sketch"}


def test_a_cluster_of_executors_makes_the_same_report(
    spark: SparkSession, client: redis.Redis, url: str, password_file: str, tmp_path: Path, spark_home: Path
) -> None:
    add_an_hour(client)
    here, there = (Runner(spark, url, password_file, str(tmp_path / name)) for name in ("here", "there"))
    here(DAY, now=datetime.now(UTC))
    submit = Submit(spark_home, tmp_path / "scratch")
    settings = ("spark.driver.memory=512m", "spark.executor.memory=512m", "spark.sql.shuffle.partitions=2")
    cluster, target = "local-cluster[2,1,512]", str(there.output)
    source = ("--redis-url", url, "--password-file", password_file)
    assert submit(cluster, settings, "ingest", *source, "--output", target).startswith("ingested")
    said = submit(cluster, settings, "report", "--day", str(DAY), "--lag-objective-ms", "200", "--output", target)
    assert "# FlockMQ report" in said
    assert list((spark_home / "work").iterdir()), "its executors were processes of their own"
    assert isinstance(here.output, LocalStorage)
    assert isinstance(there.output, LocalStorage)
    assert figures(there.output) == figures(here.output)
    assert tables(there) == tables(here)
