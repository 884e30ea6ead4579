"""Redis by itself is a real server that did what was asked; an answer that isn't the one that is due is a failure."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from flockbench import valkey
from flockbench.errors import Failed
from flockbench.valkey import Valkey, encoded

SHORTLY = 0.02


@pytest.fixture(scope="module")
def redis() -> Iterator[Valkey]:
    with valkey.running(min(os.sched_getaffinity(0))) as server:
        yield server


def test_a_command_is_encoded_as_redis_reads_it() -> None:
    assert encoded(b"DEL", b"a key") == b"*2\r\n$3\r\nDEL\r\n$5\r\na key\r\n"


def test_redis_has_its_rates_and_keeps_nothing(redis: Valkey) -> None:
    assert redis.pairs_rate(SHORTLY, 100) > 0
    assert redis.entries_rate(SHORTLY, b"route") > 0
    assert redis.round_trip_us(SHORTLY, 10) > 0
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(redis.path))
        client.sendall(encoded(b"DBSIZE"))
        assert client.recv(16) == b":0\r\n"


def test_another_answer_than_the_one_that_is_due_is_a_failure(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        threading.Thread(target=_refuse, args=(listener,), daemon=True).start()

        with pytest.raises(Failed, match="OOM"):
            Valkey(tmp_path / "socket").round_trip_us(SHORTLY, 10)


def _refuse(listener: socket.socket) -> None:
    client, _ = listener.accept()
    with client:
        client.recv(1 << 16)
        client.sendall(b"-OOM command not allowed when used memory > 'maxmemory'\r\n")
        client.recv(1)
