"""The load in C counts what a broker does, its mistakes too, and ends with one line where it can't go on."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from flockbench.load import compiled_fleet

CONNACK = b"\x20\x02\x00\x00"
SUBACK = b"\x90\x03\x00\x01\x00"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_fleet(tmp_path_factory.mktemp("cache"))


def run(fleet: Path, measurement: str, port: int, **options: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for option in ({"seconds": 0.2, "warmup": 0.05} | options).items() for word in option]
    command = [str(fleet), measurement, str(port), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def sample(done: subprocess.CompletedProcess[str]) -> dict[str, float]:
    assert done.returncode == 0, done.stderr
    told: dict[str, float] = json.loads(done.stdout)
    return told


@contextmanager
def broker(relay: Callable[[bytes], bytes]) -> Iterator[int]:
    """A broker for one pair, as its port: the subscriber is sent what `relay` makes of each PUBLISH."""
    subscribers: list[socket.socket] = []

    def serve(client: socket.socket) -> None:
        with suppress(OSError), client, client.makefile("rb") as stream:
            while head := stream.read(2):
                rest = stream.read(head[1])
                match head[0] & 0xF0:
                    case 0x10:
                        client.sendall(CONNACK)
                    case 0x80:
                        subscribers.append(client)
                        client.sendall(SUBACK)
                    case 0x30:
                        subscribers[-1].sendall(relay(head + rest))

    def accept(listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_connects_are_counted_with_the_processor_time_of_the_processes_named(fleet: Path) -> None:
    with broker(bytes) as port, subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        told = sample(run(fleet, "connects", port, inflight=4, pid=busy.pid, seconds=0.5))
        busy.kill()

    assert told["count"] > 0
    assert told["rate"] > 0
    assert told["broker_busy"] > 0
    assert told["client_busy"] > 0


def test_messages_that_all_arrive_once_are_neither_lost_nor_repeated(fleet: Path) -> None:
    with broker(bytes) as port:
        told = sample(run(fleet, "pairs", port, pairs=1, window=10))

    assert told["count"] > 0
    assert (told["lost"], told["repeated"]) == (0, 0)


def test_an_offered_rate_is_kept(fleet: Path) -> None:
    with broker(bytes) as port:
        told = sample(run(fleet, "pairs", port, pairs=1, window=10, rate=200, seconds=0.5))

    assert 50 < told["count"] < 150


def test_a_message_sent_twice_is_counted(fleet: Path) -> None:
    with broker(lambda publish: publish * 2) as port:
        told = sample(run(fleet, "pairs", port, pairs=1, window=1, rate=200))

    assert told["lost"] == 0
    assert told["repeated"] >= told["count"] > 0


def test_a_message_left_out_is_counted(fleet: Path) -> None:
    numbers = iter(range(1 << 30))
    with broker(lambda publish: b"" if next(numbers) == 3 else publish) as port:
        told = sample(run(fleet, "pairs", port, pairs=1, window=10))

    assert (told["lost"], told["repeated"]) == (1, 0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [(b"", "a connection"), (b"\xd0\x00", "0xD0"), (b"\x30\x03\x00\x01a", "of 5 bytes")],
    ids=["closed", "a PINGRESP", "another PUBLISH"],
)
def test_what_is_not_expected_ends_it_with_a_line(fleet: Path, answer: bytes, said: str) -> None:
    def relay(_: bytes) -> bytes:
        if not answer:
            raise ConnectionAbortedError
        return answer

    with broker(relay) as port:
        done = run(fleet, "pairs", port, pairs=1, window=1)

    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("connects",),
        ("dance", "1883"),
        ("pairs", "1883", "qos", "2"),
        ("pairs", "1883", "colour", "red"),
        ("pairs", "1883", "pairs"),
    ],
)
def test_wrong_arguments_end_it_with_a_line(fleet: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run([str(fleet), *arguments], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_a_refused_connection_ends_it_with_a_line(fleet: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        port = once.getsockname()[1]

    done = run(fleet, "connects", port)

    assert done.returncode == 1
    assert "Connection refused" in done.stderr
