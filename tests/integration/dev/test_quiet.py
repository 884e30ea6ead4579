"""Who looks for WARNING in a log finds what somebody should look at: no start and no stop that went as it should."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from conformance.wire import CONNACK, SESSION_EXPIRY, V5, Wire, connect
from flockmq.bounds import RETRIED_QUIETLY_MAX_S
from integration.crashing_valkey import Valkey
from integration.dev.commands import PATIENCE_S, Command, Commands
from integration.redis.servers import until
from ports import free_port

LOUD = ("WARNING", "ERROR", "CRITICAL", "Traceback")
PATIENT = {"FLOCKMQ_CLUSTER__MAX_STALE": "60s"}
"""A node that gets no CPU for half a second, as on a busy machine, would say that its tables may be old."""
AWAY = "no cluster link to "
"""True where somebody was waited for so long that it should be said (RETRIED_QUIETLY_MAX_S)."""
CORES, REPLICANTS = ("core-1", "core-2", "core-3"), ("replicant-1", "replicant-2")


def loud(log: str) -> list[str]:
    return [line for line in log.splitlines() if any(word in line for word in LOUD)]


def stop(command: Command) -> None:
    assert command.end(signal.SIGTERM) == 0, command.errors()


def test_a_single_node_starts_stops_and_starts_again_without_a_warning(flockmq: Commands, tmp_path: Path) -> None:
    for _ in range(2):
        command, _ = flockmq.start_node("--data-dir", str(tmp_path), environment=PATIENT)
        stop(command)
        assert loud(command.errors()) == []


def test_a_demo_starts_and_stops_without_a_warning(flockmq: Commands, tmp_path: Path) -> None:
    command = flockmq.start("dev", "--port", "0", "--management-port", "0", "--cores", "2", environment=PATIENT)
    command.until("Press Ctrl-C")
    logs = list(Path(command.folder).glob("flockmq-dev-*/*.log"))
    for log in logs:
        os.link(log, tmp_path / log.name)  # the demo removes its own
    stop(command)
    assert sorted(log.name for log in logs) == ["core-1.log", "core-2.log", "replicant-1.log", "replicant-2.log"]
    assert loud(command.errors()) == []
    assert {log.name: loud((tmp_path / log.name).read_text()) for log in logs} == {log.name: [] for log in logs}


class Cluster:
    """Nodes as Kubernetes starts them: all at once."""

    def __init__(self, flockmq: Commands, url: str, folder: Path) -> None:
        self._flockmq = flockmq
        self._folder = folder
        self._long_away = False
        self._listens = {name: f"127.0.0.1:{free_port()}" for name in CORES}
        self._shared = {
            "REDIS__URL": url,
            "CLUSTER__KEY": "a cluster key of 32 bytes or more",
            "CLUSTER__SEEDS": ",".join(self._listens.values()),
            "CLUSTER__CORES": str(len(CORES)),
            "AUTHENTICATION__ALLOW_ANONYMOUS": "true",
            "NODE__HOST": "127.0.0.1",
        }

    def start(self) -> dict[str, Command]:
        """Returns when all are ready."""
        since = time.monotonic()
        begun = {name: self._begin(name) for name in (*CORES, *REPLICANTS)}
        for command, told in begun.values():
            self._flockmq.ready(command, told)
        self._waited(since)
        return {name: command for name, (command, _) in begun.items()}

    def restart(self, name: str, command: Command) -> Command:
        since = time.monotonic()
        stop(command)
        again, told = self._begin(name)
        self._flockmq.ready(again, told)
        self._waited(since)
        return again

    def _waited(self, since: float) -> None:
        self._long_away |= time.monotonic() - since >= RETRIED_QUIETLY_MAX_S

    def loud(self, command: Command) -> list[str]:
        return [line for line in loud(command.errors()) if not (self._long_away and AWAY in line)]

    def _begin(self, name: str) -> tuple[Command, int]:
        own = {
            "ROLE": name.partition("-")[0],
            "NODE__NAME": name,
            "NODE__DATA_DIR": str(self._folder / name),
            "CLUSTER__LISTEN": self._listens.get(name, "127.0.0.1:0"),
        }
        environment = {f"FLOCKMQ_{key}": value for key, value in (self._shared | own).items()}
        return self._flockmq.begin_node(environment=environment | PATIENT)


def test_a_cluster_starts_and_stops_at_once_and_starts_again_without_a_warning(
    flockmq: Commands, valkey: Valkey, tmp_path: Path
) -> None:
    cluster = Cluster(flockmq, valkey.config.url, tmp_path)
    for _ in range(2):
        commands = cluster.start()
        for command in commands.values():
            command.process.send_signal(signal.SIGTERM)
        assert [command.process.wait(PATIENCE_S) for command in commands.values()] == [0] * len(commands)
        assert {name: cluster.loud(command) for name, command in commands.items()} == {name: [] for name in commands}


def test_a_cluster_rolls_without_a_warning(flockmq: Commands, valkey: Valkey, tmp_path: Path) -> None:
    """Each node stops, and starts again, while all others stay."""
    cluster = Cluster(flockmq, valkey.config.url, tmp_path)
    commands = cluster.start()
    for name in (*REPLICANTS, *reversed(CORES)):
        stopped, commands[name] = commands[name], cluster.restart(name, commands[name])
        assert cluster.loud(stopped) == []
    assert {name: cluster.loud(command) for name, command in commands.items()} == {name: [] for name in commands}


def test_a_redis_that_restarts_is_no_cause_for_a_warning(flockmq: Commands, valkey: Valkey, tmp_path: Path) -> None:
    environment = PATIENT | {"FLOCKMQ_REDIS__URL": valkey.config.url}
    command, ports = flockmq.start_node("--data-dir", str(tmp_path), environment=environment)
    with Wire(ports["mqtt"], V5) as client:
        client.send(connect(V5, "c", clean=False, properties=[(SESSION_EXPIRY, 3600)]))
        client.expect(CONNACK)
        client.subscribe(("a", 1))
        valkey.kill()
        until(lambda: "tail of the log: " in command.errors() and "the leader's round failed" in command.errors())
        valkey.restart()
        client.subscribe(("b", 1))
        client.publish("b", b"1", qos=1, retain=True)
    stop(command)
    assert loud(command.errors()) == []
