"""A whole broker whose embedded Valkey ends, as its clients, its operator and its log see it."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from conformance.wire import CONNACK, PING, PINGRESP, SESSION_EXPIRY, V5, Wire, connect
from integration.dev.commands import Command, Commands
from integration.dev.test_quiet import PATIENT, loud
from integration.redis.servers import until

AGAIN = "the embedded Valkey was started again"
ENDED = "the embedded Valkey ended, and is started again"


def valkey_of(command: Command) -> int:
    (pid,) = [pid for pid in command.pids() if Path(f"/proc/{pid}/comm").read_text() == "valkey-server\n"]
    return pid


def kill_valkey(command: Command) -> None:
    os.kill(valkey_of(command), signal.SIGKILL)


def asked(ports: dict[str, Any], path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{ports['management']}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def manifest(data_dir: Path) -> Path:
    return data_dir / "valkey" / "appendonlydir" / "appendonly.aof.manifest"


def spoil(data_dir: Path) -> str:
    """No server starts from it. Gives what was there."""
    kept = manifest(data_dir).read_text()
    manifest(data_dir).write_text("nonsense\n")
    return kept


def durable(ports: dict[str, Any], client_id: str) -> Wire:
    wire = Wire(ports["mqtt"], V5)
    wire.send(connect(V5, client_id, clean=False, properties=[(SESSION_EXPIRY, 3600)]))
    assert wire.expect(CONNACK).reason == 0
    return wire


def test_clients_go_on_when_it_was_killed(flockmq: Commands, tmp_path: Path) -> None:
    command, ports = flockmq.start_node("--data-dir", str(tmp_path), environment=PATIENT)
    with durable(ports, "stays") as wire, durable(ports, "another") as other:
        wire.subscribe(("before/#", 1))
        wire.publish("kept", b"acknowledged", qos=1, retain=True)
        kill_valkey(command)
        wire.subscribe(("kept", 1))
        assert wire.receive().payload == b"acknowledged"
        other.publish("before/1", b"through", qos=1)
        assert wire.receive().payload == b"through"
    until(lambda: AGAIN in command.errors())
    assert asked(ports, "/readyz") == (200, "ready\n")
    assert command.end(signal.SIGTERM) == 0
    assert command.pids() == []
    (line,) = loud(command.errors())
    assert f"{ENDED}: it was killed by signal 9" in line


def test_who_asks_whether_it_is_ready_learns_that_it_can_not_be_started_and_why(
    flockmq: Commands, tmp_path: Path
) -> None:
    command, ports = flockmq.start_node("--data-dir", str(tmp_path), environment=PATIENT)
    with durable(ports, "stays") as wire:
        wire.publish("kept", b"acknowledged", qos=1, retain=True)
        kept = spoil(tmp_path)
        kill_valkey(command)
        until(lambda: asked(ports, "/readyz")[0] == 503)
        said = asked(ports, "/readyz")[1]
        assert said.startswith("the embedded Valkey is away: it ended with exit code 1, saying ")
        log = f"its folder is {tmp_path}/valkey, its log {tmp_path}/valkey/valkey.log"
        assert log in said
        (alarm,) = json.loads(asked(ports, "/api/v5/alarms")[1])
        assert alarm["name"] == "redis-away"
        assert alarm["text"].endswith(log)
        assert "look at Redis" not in alarm["text"]
        wire.send(PING)
        wire.expect(PINGRESP)
        manifest(tmp_path).write_text(kept)
        until(lambda: AGAIN in command.errors())
        until(lambda: asked(ports, "/readyz") == (200, "ready\n"))
        wire.subscribe(("kept", 1))
        assert wire.receive().payload == b"acknowledged"


def test_who_stops_it_amid_a_restart_reads_no_warning(flockmq: Commands, tmp_path: Path) -> None:
    command, ports = flockmq.start_node("--data-dir", str(tmp_path), environment=PATIENT)
    with durable(ports, "stays") as wire:
        wire.subscribe(("a", 1))
        spoil(tmp_path)
        kill_valkey(command)
        until(lambda: "can't be started again, trying on" in command.errors())
        assert command.end(signal.SIGTERM) == 0, command.errors()
    assert command.pids() == []
    (line,) = loud(command.errors())
    assert ENDED in line


def test_that_of_a_demo_is_started_again_too(flockmq: Commands) -> None:
    command = flockmq.start("dev", "--port", "0", "--management-port", "0", environment=PATIENT)
    command.until("Press Ctrl-C")
    kill_valkey(command)
    until(lambda: AGAIN in command.errors())
    assert len(command.pids()) == 5  # itself, one Valkey, three nodes
    assert command.end(signal.SIGINT) == 0, command.errors()
    assert command.pids() == []
    assert command.files() == []


def test_killing_a_node_amid_a_restart_leaves_nothing(flockmq: Commands, tmp_path: Path) -> None:
    command, _ = flockmq.start_node("--data-dir", str(tmp_path), environment=PATIENT)
    kill_valkey(command)
    until(lambda: ENDED in command.errors())
    left = command.pids()
    command.end(signal.SIGKILL)
    for pid in left:
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists())
    command.wait_until_none_is_left()
