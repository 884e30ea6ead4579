"""One SparkSession on this machine: local cores, bounded memory, no UI, no name look-ups, nothing written but scratch.

Pods have a read-only root file system, and no DNS record need exist for a pod's hostname; so everything that Spark
would put into the working directory goes below the scratch directory, and every socket is bound to the loopback
address.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from flockmq_analytics.java import java_home

LOOPBACK: Final = "127.0.0.1"
MEMORY_DEFAULT: Final = "1g"
CORES_DEFAULT: Final = 2  # each costs a Python process beside the heap; so all fits into 2 GiB


@contextmanager
def spark_session(
    memory: str = MEMORY_DEFAULT, cores: int = CORES_DEFAULT, verbose: bool = False
) -> Iterator[SparkSession]:
    """`memory` bounds Java's heap, in Java's notation ("512m", "2g"); `cores` how many tasks run at once."""
    with (
        tempfile.TemporaryDirectory(prefix="flockmq-analytics-") as scratch,
        as_file(files(__package__) / "log4j2.properties") as logging,
    ):
        os.environ.update(
            JAVA_HOME=str(java_home(Path(scratch))),
            PYSPARK_PYTHON=sys.executable,
            MPLCONFIGDIR=scratch,
            SPARK_LOCAL_DIRS=scratch,
            SPARK_LOCAL_IP=LOOPBACK,
        )
        options = (
            f"-Dlog4j2.configurationFile=file:{logging}",
            f"-Dflockmq.log.level={'warn' if verbose else 'off'}",
            f"-Djava.io.tmpdir={scratch}",
            "-XX:-UsePerfData",
            # Measured on 1.25 million events: a quarter less CPU time than with the optimising compiler.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
        )
        settings = {
            "spark.driver.memory": memory,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.extraJavaOptions": " ".join(options),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            "spark.sql.session.timeZone": "UTC",
            # As instants of UTC, which others than Spark read as such.
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            "spark.sql.shuffle.partitions": "8",
            "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        }
        builder = SparkSession.Builder().master(f"local[{cores}]").appName("flockmq-analytics")
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        if not verbose:
            _silence(spark)
        try:
            yield spark
        finally:
            spark.stop()


def _silence(spark: SparkSession) -> None:
    """What libraries print past the log, such as what sketches say of each Java after 11, is nothing to act on."""
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.setErr(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
