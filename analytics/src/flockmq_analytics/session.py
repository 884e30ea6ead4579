"""One SparkSession: of this machine alone, or that which `spark-submit` has begun.

By itself it has local cores, bounded memory, no UI, no name look-ups, and writes nothing but scratch. Pods have a
read-only root file system, and no DNS record need exist for a pod's hostname; so everything that Spark would put into
the working directory goes below the scratch directory, and every socket is bound to the loopback address.

Under `spark-submit` the master, the driver's address, its memory and the file system are what it was told: nothing here
overrides a setting that it has.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from flockmq_analytics.java import java_home

LOOPBACK: Final = "127.0.0.1"
MEMORY_DEFAULT: Final = "1g"
CORES_DEFAULT: Final = 2  # each costs a Python process beside the heap; so all fits into 2 GiB


SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""In the environment of a Python program that spark-submit has started: where its Java listens."""
ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
CREDENTIALS: Final = ",".join(
    (
        "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",  # of Spark's settings
        "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",  # of the environment, of a pod's account
    )
)

EVERYWHERE: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # As instants of UTC, which others than Spark read as such.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.shuffle.partitions": "8",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # A task's files get their names when the job has ended: of a task that is tried again, one try's.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "1",
}


@contextmanager
def spark_session(
    memory: str = MEMORY_DEFAULT, cores: int = CORES_DEFAULT, verbose: bool = False
) -> Iterator[SparkSession]:
    """`memory` bounds Java's heap, in Java's notation ("512m", "2g"); `cores` how many tasks run at once. Under
    spark-submit both are its own."""
    with (
        tempfile.TemporaryDirectory(prefix="flockmq-analytics-") as scratch,
        as_file(files(__package__) / "log4j2.properties") as logging,
    ):
        os.environ["MPLCONFIGDIR"] = scratch
        settings = {**EVERYWHERE, "spark.sql.warehouse.dir": f"{scratch}/warehouse", **s3_settings(os.environ)}
        is_submitted = SUBMITTED in os.environ
        if is_submitted:
            SparkContext._ensure_initialized()  # whose settings a SparkConf then has
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        else:
            settings |= local_settings(memory, cores, verbose, scratch, logging)
        conf = SparkConf()
        for name, value in settings.items():
            (conf.setIfMissing if is_submitted else conf.set)(name, value)
        spark = SparkSession.Builder().appName("flockmq-analytics").config(conf=conf).getOrCreate()
        if not verbose:
            _silence(spark)
        try:
            yield spark
        finally:
            spark.stop()


def local_settings(memory: str, cores: int, verbose: bool, scratch: str, logging: Path) -> dict[str, str]:
    """Of a Java that this process starts; its environment is this process' own."""
    os.environ.update(
        JAVA_HOME=str(java_home(Path(scratch))),
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_DIRS=scratch,
        SPARK_LOCAL_IP=LOOPBACK,
    )
    options = (
        f"-Dlog4j2.configurationFile=file:{logging}",
        f"-Dflockmq.log.level={'warn' if verbose else 'off'}",
        f"-Djava.io.tmpdir={scratch}",
        "-XX:-UsePerfData",
        "-XX:+UseSerialGC",
    )
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": memory,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.local.dir": scratch,
    }


def s3_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Of `s3a`, by the variables that Amazon's own tools read: credentials, AWS_REGION, AWS_ENDPOINT_URL. Executors
    get what is in them from the driver, but for credentials, which each finds for itself."""
    settings = {"spark.hadoop.fs.s3a.aws.credentials.provider": CREDENTIALS}
    region = environ.get("AWS_REGION")
    if endpoint := next((found for name in ENDPOINTS if (found := environ.get(name))), None):
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"  # a name below the endpoint's need not resolve
        region = region or "us-east-1"
    if region:
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings


def _silence(spark: SparkSession) -> None:
    """What libraries print past the log, such as what sketches say of each Java after 11, is nothing to act on."""
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.setErr(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
