"""The load client tells the truth: all is well with an honest server, and what a dishonest one does is noticed.

The honest server is the client's own relay. The dishonest one is a proxy in front of it, which drops or repeats packets
on their way to the subscriber.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flockbench.brokers import Running, free_ports, started
from flockbench.client import Client, compiled, relay
from flockbench.errors import Failed
from flockbench.machine import two_cores
from flockbench.shapes import SHAPES, Shape

Tamper = Callable[[bytes], bytes]
PUBLISH_BYTES = 2 + 2 + len("bench/00000/00") + 64


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(compiled(tmp_path_factory.mktemp("client")), two_cores()[1], duration_ms=100, warmup_ms=0)


@pytest.fixture(scope="module")
def server(client: Client) -> Iterator[Running]:
    with started(relay(client.binary).install(Path()), two_cores()[0]) as running:
        yield running


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.arguments[0] == "throughput"], ids=lambda shape: shape.key)
def test_every_message_through_an_honest_server_is_accounted_for(shape: Shape, client: Client, server: Running) -> None:
    sample = client.measure(shape, server)

    assert sample["delivered"] > 0
    assert (sample["lost"], sample["repeated"]) == (0, 0)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_round_trips_have_their_percentiles_in_order(qos: int, client: Client, server: Running) -> None:
    sample = client.measure(Shape("rtt", ("rtt", "--qos", str(qos)), ()), server)

    assert 0 < sample["p50_us"] <= sample["p99_us"] <= sample["p999_us"]


def test_connects_are_counted(client: Client, server: Running) -> None:
    assert client.measure(Shape("connects", ("connects",), ()), server)["connects"] > 0


def test_idle_connections_cost_memory(client: Client, server: Running) -> None:
    sample = client.measure_idle(Shape("idle", ("idle",), (), idle=True), server, connections=1000)

    assert sample["connections"] == 1000
    assert sample["kib"] >= 0


@pytest.mark.parametrize(("tamper", "noticed"), [("drop", "lost"), ("repeat", "repeated")])
def test_a_message_lost_or_repeated_is_noticed(tamper: str, noticed: str, client: Client, server: Running) -> None:
    def once(packets: bytes, done: list[bool] = []) -> bytes:  # noqa: B006 - it remembers that it has tampered
        if done or len(packets) < 2 * PUBLISH_BYTES:
            return packets
        done.append(True)
        return packets[PUBLISH_BYTES:] if tamper == "drop" else packets[:PUBLISH_BYTES] + packets

    with proxy(server.port, once) as port:
        sample = client.measure(Shape("pairs", ("throughput", "--window", "1000"), ()), Running(0, port))

    assert sample[noticed] == 1


def test_a_connection_that_the_server_ends_is_a_failure(client: Client, server: Running) -> None:
    def hang_up(packets: bytes) -> bytes:
        raise ConnectionAbortedError

    with proxy(server.port, hang_up) as port, pytest.raises(Failed, match="the broker closed the connection"):
        client.measure(Shape("pairs", ("throughput",), ()), Running(0, port))


def test_a_server_that_is_not_there_is_named(client: Client) -> None:
    (port,) = free_ports(1)

    with pytest.raises(Failed, match=f"connect to 127.0.0.1:{port}"):
        client.measure(Shape("connects", ("connects",), ()), Running(0, port))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["throughput", "--port", "1", "--qos", "3"], "--qos 3: a whole number from 0 to 2 is wanted"),
        (["throughput", "--port", "1", "--publishers", "2"], "as many --subscribers as --publishers"),
        (["nonsense", "--port", "1"], "usage:"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], says: str, client: Client) -> None:
    done = subprocess.run([client.binary, *arguments], capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert says in done.stderr


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
