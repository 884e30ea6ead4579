"""The Redis of a lab, in each shape of which docs/redis.md promises something: one server; a primary with two replicas
and a Sentinel beside each; a cluster of three masters.

They answer only what is in their append-only files. Their configuration isn't on their volume, so one that was emptied
or is full keeps its role: what Sentinel makes of it is written there (CONFIG REWRITE).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from faults import sandbox
from faults.host import Host, OnEnd
from faults.supervised import Command
from flockmq.redis.embedded import server_binary

PORT, SENTINEL_PORT = 6379, 26379
ADDRESSES: Final = ("10.77.0.5", "10.77.0.6", "10.77.0.7")
DATA_BYTES: Final = 256 * 1024 * 1024
ANSWER_MAX_S: Final = 1.0
NOTHING_FITS_BYTES: Final = 1
PRIMARY_NAME: Final = "main"
QUORUM: Final = 2
DOWN_AFTER_MS: Final = 6000
"""As the operator has it: longer than the 5 s for which Sentinel believes what a replica said of its offset, so whom it
chooses has all that was acknowledged."""
FAILOVER_TIMEOUT_MS: Final = 10_000
CLUSTER_TIMEOUT_MS: Final = 3000
RANGES: Final = ((0, 10_000), (10_001, 14_000), (14_001, 16_383))
"""By which each master has some of the log: route is on the first, auth on the second, cluster and retained on the
third."""
SERVER: Final = """\
bind 0.0.0.0
protected-mode no
port {port}
dir {folder}
appendonly yes
appendfsync always
save ""
auto-aof-rewrite-min-size 16mb
maxmemory-policy noeviction
"""
REPLICATED: Final = """\
min-replicas-to-write 1
min-replicas-max-lag 3
repl-diskless-sync-delay 0
"""
CLUSTERED: Final = f"""\
cluster-enabled yes
cluster-require-full-coverage no
cluster-node-timeout {CLUSTER_TIMEOUT_MS}
"""
SENTINEL: Final = f"""\
bind 0.0.0.0
protected-mode no
port {SENTINEL_PORT}
dir {{folder}}
sentinel monitor {PRIMARY_NAME} {ADDRESSES[0]} {PORT} {QUORUM}
sentinel down-after-milliseconds {PRIMARY_NAME} {DOWN_AFTER_MS}
sentinel failover-timeout {PRIMARY_NAME} {FAILOVER_TIMEOUT_MS}
"""

Reaches = Callable[[Host, Host], bool]
"""Whether what the first sends comes to the second, and back."""


class RedisHost(Host):
    """One server, and a Sentinel where there is one. `options`: lines of its configuration beside those of SERVER."""

    def __init__(
        self, name: str, address: str, logs: Path, on_end: OnEnd, options: str = "", *, has_sentinel: bool = False
    ) -> None:
        self._copy = sandbox.FOLDER / f"{name}.copy"
        self._configuration = sandbox.FOLDER / f"{name}.conf"
        self._sentinel = sandbox.FOLDER / f"{name}.sentinel.conf"
        programs: dict[str, Callable[[], Command]] = {name: self._server}
        if has_sentinel:
            programs[f"{name}.sentinel"] = self._watcher
        super().__init__(name, address, logs, DATA_BYTES, programs, on_end)
        self._configuration.write_text(SERVER.format(port=PORT, folder=self.data) + options)
        self._sentinel.write_text(SENTINEL.format(folder=self.data))

    def gave_reason(self, code: int, last_words: str) -> bool:
        """It ends by itself when it can't write what it would have to answer."""
        return code >= 0

    @property
    def takes_writes(self) -> bool:
        return self.is_running and not self.is_hindered

    def limit_memory(self, used_part: float) -> None:
        self.is_hindered = used_part == 1.0
        with contextlib.suppress(RedisError):
            limit = int(self.ask("INFO", "memory")["used_memory"] / used_part) if used_part else 0
            self.ask("CONFIG", "SET", "maxmemory", NOTHING_FITS_BYTES if self.is_hindered else limit)

    def copy_data(self) -> None:
        """As a replica that hears nothing from now on."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.data, self._copy)

    def restore_copy(self) -> None:
        self.empty()
        shutil.copytree(self._copy, self.data, dirs_exist_ok=True)

    def empty(self) -> None:
        for entry in self.data.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def ask(self, *command: str | int, port: int = PORT) -> Any:
        """What the server answers, or the Sentinel at its port; the fields of what has some. Raises RedisError."""
        with redis.Redis(
            self.address,
            port,
            socket_timeout=ANSWER_MAX_S,
            socket_connect_timeout=ANSWER_MAX_S,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        ) as client:
            return client.execute_command(*command)

    def _server(self) -> Command:
        return Command([str(server_binary()), str(self._configuration)], {})

    def _watcher(self) -> Command:
        return Command([str(server_binary()), str(self._sentinel), "--sentinel"], {})


class Topology(Protocol):
    @property
    def hosts(self) -> Sequence[RedisHost]: ...

    @property
    def settings(self) -> Mapping[str, str]:
        """Of the nodes' environment, FLOCKMQ_ names without the FLOCKMQ_."""

    def form(self) -> None:
        """Once, when all servers answer."""

    def is_well(self) -> bool:
        """Everybody is there, and knows the others. Raises RedisError."""

    def primary(self) -> RedisHost | None:
        """The one server that takes writes, if there is one."""

    def writable(self, reaches: Reaches) -> Sequence[RedisHost]:
        """Whom a core must reach to write; nobody: no core can."""


class OneServer:
    def __init__(self, logs: Path, on_end: OnEnd) -> None:
        self.hosts = (RedisHost("redis", ADDRESSES[0], logs, on_end),)
        self.settings = {"REDIS__URL": f"redis://{ADDRESSES[0]}:{PORT}"}

    def form(self) -> None:
        """There is nothing to form."""

    def is_well(self) -> bool:
        return True

    def primary(self) -> RedisHost | None:
        return self.hosts[0]

    def writable(self, reaches: Reaches) -> Sequence[RedisHost]:
        return [host for host in self.hosts if host.takes_writes]


class Replicated:
    def __init__(self, logs: Path, on_end: OnEnd) -> None:
        first = f"replicaof {ADDRESSES[0]} {PORT}\n"
        self.hosts = tuple(
            RedisHost(f"redis-{i}", address, logs, on_end, REPLICATED + (first if i > 1 else ""), has_sentinel=True)
            for i, address in enumerate(ADDRESSES, 1)
        )
        sentinels = ",".join(f"{address}:{SENTINEL_PORT}" for address in ADDRESSES)
        self.settings = {"REDIS__URL": f"redis+sentinel://{sentinels}/{PRIMARY_NAME}", "REDIS__MIN_REPLICAS": "1"}

    def form(self) -> None:
        """The Sentinels find one another by way of the primary."""

    def is_well(self) -> bool:
        if not all(_sees_all(host.ask("SENTINEL MASTER", PRIMARY_NAME, port=SENTINEL_PORT)) for host in self.hosts):
            return False
        primary = self.primary()
        return primary is not None and _has_replicas(primary.ask("INFO", "replication"))

    def primary(self) -> RedisHost | None:
        """Whom most of the Sentinels name."""
        named = [address for host in self.hosts if (address := _named_by(host))]
        chosen = [host for host in self.hosts if named.count(host.address) >= QUORUM]
        return chosen[0] if chosen else None

    def writable(self, reaches: Reaches) -> Sequence[RedisHost]:
        primary = self.primary()
        if primary is None or not primary.takes_writes:
            return ()
        replicas = (host for host in self.hosts if host is not primary and host.takes_writes)
        return (primary,) if any(reaches(primary, replica) for replica in replicas) else ()


def _named_by(host: RedisHost) -> str:
    """The primary's address by the word of the Sentinel there; "" where it doesn't answer."""
    with contextlib.suppress(RedisError):
        return str(host.ask("SENTINEL GET-MASTER-ADDR-BY-NAME", PRIMARY_NAME, port=SENTINEL_PORT)[0])
    return ""


def _sees_all(told: Mapping[str, Any]) -> bool:
    """A Sentinel sees the primary up, and knows of all others."""
    return (told["flags"], told["num-slaves"], told["num-other-sentinels"]) == ("master", 2, 2)


def _has_replicas(told: Mapping[str, Any]) -> bool:
    """A primary has two that are in step."""
    return told["role"] == "master" and all(told.get(f"slave{i}", {}).get("state") == "online" for i in range(2))


class Clustered:
    def __init__(self, logs: Path, on_end: OnEnd) -> None:
        self.hosts = tuple(
            RedisHost(f"redis-{i}", address, logs, on_end, CLUSTERED) for i, address in enumerate(ADDRESSES, 1)
        )
        self.settings = {"REDIS__URL": f"redis+cluster://{','.join(f'{address}:{PORT}' for address in ADDRESSES)}"}

    def form(self) -> None:
        for epoch, (host, (first, last)) in enumerate(zip(self.hosts, RANGES, strict=True), 1):
            host.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
            host.ask("CLUSTER", "SET-CONFIG-EPOCH", epoch)
            host.ask("CLUSTER", "MEET", ADDRESSES[0], PORT)

    def is_well(self) -> bool:
        return all(_sees_every_slot(host.ask("CLUSTER INFO")) for host in self.hosts)

    def primary(self) -> RedisHost | None:
        return None

    def writable(self, reaches: Reaches) -> Sequence[RedisHost]:
        return self.hosts if all(host.takes_writes for host in self.hosts) else ()


def _sees_every_slot(told: Mapping[str, str]) -> bool:
    """A node of a cluster knows the others, and who has each hash slot."""
    return (told["cluster_state"], told["cluster_slots_ok"], told["cluster_known_nodes"]) == ("ok", "16384", "3")


SHAPES: Final[Mapping[str, Callable[[Path, OnEnd], Topology]]] = {
    "server": OneServer,
    "sentinel": Replicated,
    "cluster": Clustered,
}


def answers(topology: Topology) -> bool:
    """Every server does."""
    return _holds(lambda: all(host.ask("PING") for host in topology.hosts))


def is_well(topology: Topology) -> bool:
    """Whoever can't be asked now isn't."""
    return _holds(topology.is_well)


def _holds(condition: Callable[[], bool]) -> bool:
    with contextlib.suppress(RedisError):
        return condition()
    return False
