"""A Redis of the bench's own, and what it does by itself: the yardstick of the log and of durable sessions.

It is the embedded Valkey's binary with the same durability, an append-only file with `appendfsync always`. The clients
here are blocking sockets and bytes that are made beforehand, so that nothing but Redis is measured.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flockbench.brokers import pinned
from flockbench.errors import Failed, Missing
from flockmq.errors import UserError
from flockmq.redis.embedded import server_binary

START_MAX_S: Final = 10.0
STOP_MAX_S: Final = 10.0
ANSWER_MAX_S: Final = 10.0
PIPELINE: Final = 800
"""Commands, or pairs of them, in one round trip."""
FIRST_BATCH: Final = 1_000_000_000
"""Batches are numbered with ten digits each, so that all of them have the same length."""
NUMBER: Final = b"##########"
"""Stands for the batch's number in bytes that are made beforehand."""
USED: Final = b"used_memory:"
DURABLE: Final = ("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--maxmemory-policy", "noeviction")


@dataclass(frozen=True)
class Valkey:
    """A server that answers at a Unix socket."""

    path: Path

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def pairs_rate(self, seconds: float, payload_bytes: int) -> float:
        """XADD of an entry and XDEL of it, pairs a second, pipelined."""
        payload = b"x" * payload_bytes
        ids = [NUMBER + b"-%d" % place for place in range(PIPELINE)]
        commands = b"".join(
            encoded(b"XADD", b"bench:pairs", each, b"m", payload) + encoded(b"XDEL", b"bench:pairs", each)
            for each in ids
        )
        return self._rate(commands, b"".join(b"$%d\r\n%b\r\n:1\r\n" % (len(each), each) for each in ids), seconds)

    def entries_rate(self, seconds: float, payload: bytes) -> float:
        """XADD of an entry, entries a second, pipelined."""
        ids = [NUMBER + b"-%d" % place for place in range(PIPELINE)]
        commands = b"".join(encoded(b"XADD", b"bench:entries", each, b"b", payload) for each in ids)
        return self._rate(commands, b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in ids), seconds)

    def round_trip_us(self, seconds: float, payload_bytes: int) -> float:
        """XADD of an entry up to its answer, one at a time: the median."""
        with self._client() as client:
            samples, end, number = list[float](), time.perf_counter() + seconds, FIRST_BATCH
            while not samples or time.perf_counter() < end:
                number += 1
                command = encoded(b"XADD", b"bench:trips", b"%d-1" % number, b"b", b"x" * payload_bytes)
                start = time.perf_counter()
                client.sendall(command)
                _expect(client, b"$12\r\n%d-1\r\n" % number)
                samples.append(time.perf_counter() - start)
            self._forget(client, b"bench:trips")
        return statistics.median(samples) * 1e6

    def used_bytes(self) -> int:
        """The memory that it uses for what it holds."""
        with self._client() as client:
            client.sendall(encoded(b"INFO", b"memory"))
            lines = client.recv(1 << 16).split(b"\r\n")
        return next(int(line.removeprefix(USED)) for line in lines if line.startswith(USED))

    def _rate(self, commands: bytes, answers: bytes, seconds: float) -> float:
        with self._client() as client:
            start, batches, elapsed = time.perf_counter(), 0, 0.0
            while elapsed < seconds:
                number = b"%d" % (FIRST_BATCH + batches)
                client.sendall(commands.replace(NUMBER, number))
                _expect(client, answers.replace(NUMBER, number))
                batches += 1
                elapsed = time.perf_counter() - start
            self._forget(client, b"bench:pairs", b"bench:entries")
        return batches * PIPELINE / elapsed

    @contextlib.contextmanager
    def _client(self) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(ANSWER_MAX_S)
            try:
                client.connect(str(self.path))
                yield client
            except OSError as error:
                raise Failed(f"Valkey: {error}") from None

    @staticmethod
    def _forget(client: socket.socket, *keys: bytes) -> None:
        client.sendall(encoded(b"DEL", *keys))
        client.recv(16)


@contextlib.contextmanager
def running(core: int) -> Iterator[Valkey]:
    """A fresh server on `core` until the block ends. Raises Missing, Failed."""
    try:
        binary = server_binary()
    except UserError as why:
        raise Missing(str(why)) from None
    with tempfile.TemporaryDirectory(prefix="flockmq-bench-valkey-") as name:
        valkey = Valkey(Path(name) / "valkey.sock")
        place = ("--port", "0", "--unixsocket", str(valkey.path), "--dir", name)
        process = subprocess.Popen(
            pinned(core, (str(binary), *place, *DURABLE)), stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        try:
            _wait_until_it_listens(process, valkey.path)
            yield valkey
        finally:
            process.kill()  # nothing of it is kept
            process.wait(STOP_MAX_S)


def encoded(*arguments: bytes) -> bytes:
    """A command as Redis reads it (RESP)."""
    return b"*%d\r\n" % len(arguments) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in arguments)


def _expect(client: socket.socket, answers: bytes) -> None:
    """Read exactly what Redis has to answer."""
    parts, missing = list[bytes](), len(answers)
    while missing > 0:
        part = client.recv(1 << 18)
        if not part:
            raise Failed("Valkey closed the connection")
        parts.append(part)
        missing -= len(part)
    said = b"".join(parts)
    if said != answers:
        raise Failed(f"Valkey answered {said[:80]!r}")


def _wait_until_it_listens(process: subprocess.Popen[bytes], path: Path) -> None:
    deadline = time.monotonic() + START_MAX_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"Valkey didn't start within {START_MAX_S:.0f} s")
        time.sleep(0.01)
