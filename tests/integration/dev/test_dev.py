"""`flockmq dev` as a user sees it: a cluster comes up, a message crosses it, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import socket

import redis

from flockmq import dev
from flockmq.redis import embedded
from integration.dev.commands import PATIENCE_S, Commands
from pyspark_flockmq.events import STREAMS, decode_batch
from pyspark_flockmq.options import redis_config
from pyspark_flockmq.plan import FIRST_ID, IdRange
from pyspark_flockmq.reading import entries, last_ids
from pyspark_flockmq.servers import Primaries

FREE_PORTS = ("--port", "0", "--management-port", "0")
UP = "Press Ctrl-C to stop."


def test_once_shows_ports_and_a_crossing_and_leaves_nothing(flockmq: Commands) -> None:
    command = flockmq.start("dev", "--cores", "2", "--replicants", "2", "--once", *FREE_PORTS)
    shown = command.process.stdout.read()
    assert command.process.wait(PATIENCE_S) == 0, command.errors()
    rows = [line.split()[0] for line in shown.splitlines() if line][1:5]
    assert rows == ["core-1", "core-2", "replicant-1", "replicant-2"]
    crossing = re.search(
        r"published on replicant-1 \(port \d+\), reached .* replicant-2 \(port \d+\) in [\d.]+ ms", shown
    )
    assert crossing, shown
    assert command.pids() == []
    assert command.files() == []


def test_it_stays_until_ctrl_c_and_then_leaves_nothing(flockmq: Commands) -> None:
    command = flockmq.start("dev", *FREE_PORTS)
    assert "Anonymous clients are allowed" in command.until(UP)
    assert len(command.pids()) == 5  # itself, one Valkey, three nodes
    assert command.end(signal.SIGINT) == 0, command.errors()
    assert command.pids() == []
    assert command.files() == []


def test_the_events_of_a_demo_can_be_drained_from_the_redis_that_it_names(flockmq: Commands) -> None:
    command = flockmq.start("dev", *FREE_PORTS)
    named = re.search(r"^Redis: (unix://(\S+))$", command.until(UP), re.MULTILINE)
    assert named, "it says where its Redis is"
    connections = STREAMS["connections"]
    with redis.Redis(unix_socket_path=named[2]) as client:
        assert client.xread({connections.key: 0}, count=1, block=PATIENCE_S * 1000)
    with Primaries(redis_config({"url": named[1]})) as primaries:
        last = last_ids(primaries, [connections.key])[connections.key]
        assert last is not None
        batches = [
            decode_batch(connections, fields)
            for _, fields in entries(primaries, connections.key, IdRange(FIRST_ID, last))
        ]
    assert sum(len(batch.positions) for batch in batches) > 0
    assert command.end(signal.SIGINT) == 0, command.errors()


def test_stopping_takes_less_than_5_s_even_if_every_process_must_be_killed() -> None:
    assert 2 * dev.STOP_TIMEOUT_S + embedded.STOP_TIMEOUT_S < 5


def test_a_node_that_dies_is_reported_and_the_others_go_on(flockmq: Commands) -> None:
    command = flockmq.start("dev", *FREE_PORTS)
    command.until(UP)
    (pid,) = command.pids("FLOCKMQ_NODE__NAME=replicant-2")
    os.kill(pid, signal.SIGKILL)
    shown = command.until("2 of 3 nodes go on.")
    assert "replicant-2 was killed by signal 9; its last lines:\n" in shown
    assert "ready: tcp:default" in shown
    assert command.end(signal.SIGINT) == 0, command.errors()
    assert command.pids() == []
    assert command.files() == []


def test_killing_it_outright_leaves_nothing_either(flockmq: Commands) -> None:
    command = flockmq.start("dev", *FREE_PORTS)
    command.until(UP)
    command.end(signal.SIGKILL)
    command.wait_until_none_is_left()


def test_a_port_in_use_is_one_line_and_exit_code_4(flockmq: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        refusal = flockmq.refused("dev", "--port", str(port), "--management-port", "0")
    code, line = refusal
    assert code == 4
    assert line == f"replicant-1: listeners.tcp.default.bind: 127.0.0.1:{port} is in use; choose another with --port P"


def test_an_unreachable_redis_is_one_line_and_exit_code_3(flockmq: Commands) -> None:
    with socket.socket() as held:  # bound, not listening
        held.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{held.getsockname()[1]}/0"
        code, line = flockmq.refused(
            "dev", *FREE_PORTS, "--redis", url, environment={"FLOCKMQ_REDIS__CONNECT_TIMEOUT": "0"}
        )
    assert code == 3
    assert line.startswith(f"core-1: redis.url: {url} can't be reached: ")
