"""`flockmq bench` tells the truth: all is well with an honest broker, and what a dishonest one does is noticed.

The honest broker is FlockMQ. The dishonest one is a proxy in front of it, which drops or repeats packets on their way
to the subscriber.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from flockmq.bench import link, target
from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import Connect
from integration.bench.conftest import Broker
from integration.dev.commands import PATIENCE_S

Tamper = Callable[[bytes], bytes]
PUBLISH_BYTES = 2 + 2 + len("bench/AAA/AAAAA") + 64
SHORTLY = ("--seconds", "0.1", "--warmup", "0")


def bench(measurement: str, where: int | str, *options: str) -> subprocess.CompletedProcess[str]:
    """`where`: a URL, or a port on this machine."""
    where = where if isinstance(where, str) else f"mqtt://127.0.0.1:{where}"
    command = [sys.executable, "-P", "-m", "flockmq", "bench", measurement, where, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def figures(measurement: str, where: int | str, *options: str) -> dict[str, float]:
    done = bench(measurement, where, *options, "--json")
    assert done.returncode == 0, done.stderr
    sample: dict[str, float] = json.loads(done.stdout)
    return sample


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--topics", "64"),
        ("--fan", "--subscribers", "5"),
        ("--fan", "--publishers", "5", "--window", "100"),
        ("--publishers", "10", "--subscribers", "10", "--batch", "1", "--window", "100"),
        ("--qos", "1", "--topics", "7"),
        ("--qos", "2"),
        ("--qos", "1", "--lasting", "--topics", "7"),
        ("--qos", "2", "--lasting"),
        ("--payload", "8"),
        ("--payload", "20000", "--window", "20"),
        ("--filters", "1000"),
        ("--processes", "2", "--window", "100"),
    ],
    ids=" ".join,
)
def test_every_message_through_an_honest_broker_is_accounted_for(options: tuple[str, ...], port: int) -> None:
    sample = figures("throughput", port, *SHORTLY, *options)

    assert sample["delivered"] > 0
    assert (sample["lost"], sample["repeated"], sample["late"]) == (0, 0, 0)


@pytest.mark.parametrize("qos", ["0", "1", "2"])
@pytest.mark.parametrize("scheme", ["mqtts", "ws", "wss"])
def test_it_is_the_same_over_tls_and_websocket(scheme: str, qos: str, broker: Broker) -> None:
    sample = figures("throughput", broker.urls[scheme], "--cafile", str(broker.cafile), *SHORTLY, "--qos", qos)

    assert sample["delivered"] > 0
    assert (sample["lost"], sample["repeated"], sample["late"]) == (0, 0, 0)


def test_a_certificate_that_is_not_trusted_is_a_failure_unless_any_will_do(broker: Broker) -> None:
    done = bench("connects", broker.urls["mqtts"], *SHORTLY)

    assert done.returncode == 1
    assert "certificate verify failed" in done.stderr
    assert figures("connects", broker.urls["mqtts"], *SHORTLY, "--insecure")["connects"] > 0


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_round_trips_have_their_percentiles_in_order(qos: str, port: int) -> None:
    sample = figures("latency", port, *SHORTLY, "--qos", qos)

    assert 0 < sample["p50_us"] <= sample["p99_us"] <= sample["p999_us"] <= sample["max_us"]


def test_a_subscription_has_its_percentiles_in_order(port: int) -> None:
    sample = figures("subscribes", port, *SHORTLY)

    assert 0 < sample["p50_us"] <= sample["p99_us"] <= sample["p999_us"] <= sample["max_us"]


def test_a_lasting_link_leaves_a_session_that_is_forgotten_when_asked(port: int) -> None:
    where = target.parse(f"mqtt://127.0.0.1:{port}")
    link.connect(where, "outliving", lasting=True).close()

    assert is_present(port, "outliving")
    link.forget(where, "outliving")
    assert not is_present(port, "outliving")


def test_a_run_with_durable_sessions_leaves_none(port: int) -> None:
    figures("throughput", port, *SHORTLY, "--qos", "1", "--lasting")

    assert not is_present(port, "bench-subscriber-0")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_connects_are_counted(processes: str, port: int) -> None:
    assert figures("connects", port, *SHORTLY, "--processes", processes)["connects"] > 0


def test_idle_connections_are_opened_and_their_memory_is_told(port: int) -> None:
    sample = figures("idle", port, "--connections", "200", "--pid", str(os.getpid()))

    assert sample["connections"] == 200
    assert "kib" in sample


def test_the_brokers_own_cost_is_told_for_its_pid(port: int) -> None:
    sample = figures("throughput", port, *SHORTLY, "--pid", str(os.getpid()))

    assert sample["resident_bytes"] > 0
    assert sample["broker_busy"] >= 0


def test_for_people_it_prints_what_was_measured(port: int) -> None:
    done = bench("throughput", port, *SHORTLY)

    assert f"mqtt://127.0.0.1:{port}: throughput, 1 → 1 in pairs" in done.stdout
    assert "0 lost, 0 repeated, 0 late" in done.stdout


@pytest.mark.parametrize(("tamper", "noticed"), [("drop", "lost"), ("repeat", "repeated")])
def test_a_message_lost_or_repeated_is_noticed(tamper: str, noticed: str, port: int) -> None:
    def once(packets: bytes, done: list[bool] = []) -> bytes:  # noqa: B006 - it remembers that it has tampered
        if done or len(packets) < 2 * PUBLISH_BYTES:
            return packets
        done.append(True)
        return packets[PUBLISH_BYTES:] if tamper == "drop" else packets[:PUBLISH_BYTES] + packets

    with proxy(port, once) as near:
        sample = figures("throughput", near, *SHORTLY, "--window", "1000")

    assert sample[noticed] == 1


def test_a_connection_that_the_broker_ends_is_a_failure(port: int) -> None:
    def hang_up(packets: bytes) -> bytes:
        raise ConnectionAbortedError

    with proxy(port, hang_up) as near:
        done = bench("throughput", near, *SHORTLY)

    assert done.returncode == 1
    assert done.stderr.startswith(f"flockmq: error: mqtt://127.0.0.1:{near}: the ")
    assert "Traceback" not in done.stderr


def test_a_broker_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    done = bench("connects", port)

    assert done.returncode == 1
    assert done.stderr == f"flockmq: error: mqtt://127.0.0.1:{port}: no connection: Connection refused\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--qos", "3"), "argument --qos: '3' must be a whole number from 0 to 2"),
        (("--publishers", "2"), "pairs need as many --subscribers as --publishers (or say --fan)"),
        (("--payload", "7"), "must be a whole number from 8"),
        (("--password-file", "/nowhere"), "--password-file /nowhere: can't be read"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[str, ...], says: str) -> None:
    done = bench("throughput", 1, *arguments)

    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def is_present(port: int, client_id: str) -> bool:
    """Whether the broker keeps a session of the client id, which it goes on keeping."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.sendall(encode.connect(Connect(frame.V311, client_id.encode(), clean_start=False)))
        connack = client.recv(4)
        client.sendall(encode.disconnect(frame.V311))
    return connack == b"\x20\x02\x01\x00"


@contextlib.contextmanager
def proxy(upstream: int, tamper: Tamper) -> Iterator[int]:
    """A port that leads to `upstream`; runs of PUBLISH packets on their way back pass through `tamper`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, upstream, tamper), daemon=True).start()
        yield listener.getsockname()[1]


def _accept(listener: socket.socket, upstream: int, tamper: Tamper) -> None:
    with contextlib.suppress(OSError):  # closed at the end of the test
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(("127.0.0.1", upstream))
            threading.Thread(target=_copy, args=(near, far, bytes), daemon=True).start()
            threading.Thread(target=_copy, args=(far, near, tamper), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket, tamper: Tamper) -> None:
    """Copy until either end closes, then close both; what begins with a whole QoS 0 PUBLISH is tampered with."""
    behind = 0  # bytes of a PUBLISH whose end is in the next chunk
    with source, target:
        with contextlib.suppress(OSError):
            while chunk := source.recv(1 << 16):
                messages = behind > 0 or chunk[0] == 0x30
                target.sendall(tamper(chunk) if messages and not behind else chunk)
                behind = (behind + len(chunk)) % PUBLISH_BYTES if messages else 0
        for end in (source, target):  # wakes the thread that copies the other way
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
