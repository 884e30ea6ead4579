"""`flockmq run --workers`: one broker of several processes, of which any may end."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flockmq.memory_limit import node_memory
from integration.broker.clients import Client
from integration.broker.conftest import Node
from integration.dev.commands import PATIENCE_S, Command, Commands

CONNECT = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04"
CONNACK = b"\x20\x02\x00\x00"


class Broker:
    """Two workers on free ports. A node is found by its name in its environment."""

    def __init__(self, flockmq: Commands, folder: Path) -> None:
        arguments = ("--data-dir", str(folder), "--cluster-listen", "127.0.0.1:0", "--name", "box", "--workers", "2")
        self.command: Command
        self.command, self.ports = flockmq.start_node(*arguments)

    @property
    def mqtt(self) -> int:
        port: int = self.ports["mqtt"]
        return port

    def pid(self, name: str) -> int:
        (pid,) = self.command.pids(f"FLOCKMQ_NODE__NAME={name}")
        return pid

    def clients(self, name: str) -> int:
        """Who is connected to a worker, by its open sockets."""
        connected = Path(f"/proc/{self.pid(name)}/net/tcp").read_text()
        owned = {str(fd.readlink()) for fd in Path(f"/proc/{self.pid(name)}/fd").iterdir()}
        port = f":{self.mqtt:04X}"
        rows = [line.split() for line in connected.splitlines()[1:]]
        return sum(row[1].endswith(port) and row[3] == "01" and f"socket:[{row[9]}]" in owned for row in rows)

    def until_logged(self, text: str) -> None:
        """The log goes on to a file, which is read until the line is there."""
        log = Path(f"{self.command.folder}.log")
        with log.open() as lines:
            while text not in lines.readline():
                assert self.command.process.poll() is None


@pytest.fixture
def broker(flockmq: Commands, tmp_path: Path) -> Broker:
    return Broker(flockmq, tmp_path)


@contextlib.contextmanager
def connected(port: int, number: int) -> Iterator[None]:
    """So many clients, each of them let in."""
    with contextlib.ExitStack() as stack:
        for each in range(number):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(CONNECT + b"%04d" % each)
            assert client.recv(4) == CONNACK
        yield


def test_clients_come_to_both_workers_and_messages_cross(broker: Broker) -> None:
    with connected(broker.mqtt, 200):
        assert all(broker.clients(name) > 50 for name in ("box-1", "box-2"))
    with Client(broker.mqtt, "s") as subscriber, Client(broker.mqtt, "p") as publisher:
        subscriber.subscribe("a/#", qos=1)
        for number in range(5):
            publisher.publish(f"a/{number}", "x", qos=1)
        assert [subscriber.receive()[0] for _ in range(5)] == [f"a/{number}" for number in range(5)]


def told(broker: Broker, path: str) -> tuple[int, str]:
    """What the broker's management address answers."""
    connection = http.client.HTTPConnection("127.0.0.1", broker.ports["management"], timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def until_ready(broker: Broker) -> None:
    while told(broker, "/readyz") != (200, "ready\n"):
        assert broker.command.process.poll() is None


def test_it_is_ready_while_a_worker_takes_clients(broker: Broker) -> None:
    until_ready(broker)
    assert told(broker, "/availz") == (200, "ready\n")
    os.kill(broker.pid("box-1"), signal.SIGKILL)
    assert told(broker, "/readyz") == (200, "ready\n")
    os.kill(broker.pid("box-2"), signal.SIGKILL)
    while (said := told(broker, "/readyz")) == (200, "ready\n"):
        assert broker.command.process.poll() is None
    assert said == (503, "no replicant takes clients\n")
    until_ready(broker)


def test_its_processes_share_its_memory(broker: Broker) -> None:
    core = Node("box", broker.command, broker.ports)
    part = node_memory(has_valkey=True).limit_bytes // 3
    assert core.metric("flockmq_node_memory_max_bytes") == pytest.approx(part, rel=1e-6)  # metrics are rounded


def test_it_stops_cleanly_and_leaves_nothing(broker: Broker) -> None:
    assert len(broker.command.pids()) == 5  # itself, one Valkey, three nodes
    assert broker.command.end(signal.SIGTERM) == 0, broker.command.errors()
    assert broker.command.pids() == []
    assert "Traceback" not in broker.command.errors()


def test_killing_it_outright_leaves_nothing_either(broker: Broker) -> None:
    broker.command.process.kill()
    broker.command.process.wait(PATIENCE_S)
    broker.command.wait_until_none_is_left()


def test_a_worker_that_dies_is_started_again_at_the_same_ports(broker: Broker) -> None:
    before = broker.pid("box-1")
    os.kill(before, signal.SIGKILL)
    broker.until_logged("box-1 is ready again")
    assert broker.pid("box-1") != before
    with connected(broker.mqtt, 20):
        pass


def test_a_core_that_dies_is_started_again_and_clients_stay(broker: Broker) -> None:
    with Client(broker.mqtt, "s", lasts=True) as subscriber, Client(broker.mqtt, "p") as publisher:
        subscriber.subscribe("a", qos=1)
        os.kill(broker.pid("box"), signal.SIGKILL)
        broker.until_logged("box is ready again")
        publisher.publish("a", "after it", qos=1)
        assert subscriber.receive()[1] == "after it"
        assert not subscriber.disconnected.is_set()


def test_sessions_are_there_with_workers_and_without(flockmq: Commands, broker: Broker, tmp_path: Path) -> None:
    with Client(broker.mqtt, "s", lasts=True) as subscriber:
        subscriber.subscribe("a", qos=1)
    assert broker.command.end(signal.SIGTERM) == 0
    _, ports = flockmq.start_node("--data-dir", str(tmp_path), "--cluster-listen", "127.0.0.1:0", "--name", "box")
    with Client(ports["mqtt"], "s", lasts=True) as subscriber:
        assert subscriber.session_present


def test_a_port_in_use_is_one_line_and_exit_code_4(flockmq: Commands, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        listen = f"127.0.0.1:{held.getsockname()[1]}"
        code, line = flockmq.refused("run", "--workers", "2", "--listen", listen, "--data-dir", str(tmp_path))
    assert code == 4
    assert line == f"listeners.tcp.default.bind: {listen} is in use; choose another with --listen HOST:PORT"


def test_what_a_node_refuses_is_told_once_with_its_exit_code(flockmq: Commands, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        management = f"127.0.0.1:{held.getsockname()[1]}"
        arguments = ("--listen", "127.0.0.1:0", "--management", management, "--data-dir", str(tmp_path))
        command = flockmq.start("run", "--workers", "2", *arguments)
        assert command.process.wait(PATIENCE_S) == 4
    assert command.errors().count("flockmq: error: ") == 1
    assert f"management.listen: {management} is in use" in command.errors()
