"""The users of Redis on a real server: what they may do, and that they may do nothing else."""

import subprocess
from collections.abc import Iterator

import pytest
from redis.exceptions import NoPermissionError

from integration.operator.pods import Cluster, Pod


@pytest.fixture(scope="module")
def redis_of_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """A Redis without replicas, with the same users."""
    cluster = Cluster(tmp_path_factory.mktemp("one"))
    pod = cluster.pods[0]
    conf = pod.volume / "etc/valkey.conf"
    conf.write_text(conf.read_text().replace("min-replicas-to-write 1", ""))
    pod.running["redis"] = subprocess.Popen(
        [cluster.folder / "valkey-server", conf], stdout=subprocess.DEVNULL, start_new_session=True
    )
    cluster.wait(lambda: pod.role() == "master", "up")
    yield pod
    pod.kill()


LIBRARY = "#!lua name=mine\nserver.register_function('f', function() end)"


@pytest.mark.parametrize(
    ("user", "command"),
    [
        ("core", ("XADD", "flockmq:{route}:log", "1-1", "a", "b")),
        ("core", ("FUNCTION", "LOAD", "REPLACE", LIBRARY)),
        ("core", ("INFO", "server")),
        ("replicant", ("XREAD", "STREAMS", "flockmq:{route}:log", "0-0")),
        ("replicant", ("XRANGE", "flockmq:{auth}:log", "-", "+")),
        ("report", ("XRANGE", "flockmq:events:lag", "-", "+")),
        ("report", ("HSET", "flockmq:events:committed", "lag", "1-1")),
    ],
)
def test_users_may_do_what_they_do(redis_of_one: Pod, user: str, command: tuple[str, ...]) -> None:
    with redis_of_one.redis(user, user) as redis:
        redis.execute_command(*command)


@pytest.mark.parametrize(
    ("user", "command"),
    [
        ("core", ("SET", "other", "x")),
        ("core", ("CONFIG", "SET", "maxmemory", "1")),
        ("core", ("FLUSHALL",)),
        ("core", ("REPLICAOF", "NO", "ONE")),
        ("replicant", ("XADD", "flockmq:{route}:log", "9-1", "a", "b")),
        ("replicant", ("XREAD", "STREAMS", "flockmq:events:lag", "0-0")),
        ("replicant", ("GET", "flockmq:{s17}:fence")),
        ("report", ("XRANGE", "flockmq:{route}:log", "-", "+")),
        ("report", ("HSET", "flockmq:events:lag", "lag", "1-1")),
        ("report", ("DEL", "flockmq:events:lag")),
    ],
)
def test_users_may_do_nothing_else(redis_of_one: Pod, user: str, command: tuple[str, ...]) -> None:
    with redis_of_one.redis(user, user) as redis, pytest.raises(NoPermissionError):
        redis.execute_command(*command)
