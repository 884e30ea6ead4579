"""Strangers who open the management port and never finish a request take no descriptors that clients need."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trustme

from flockmq.bounds import ACCEPTS_PER_TURN_MAX, MANAGEMENT_CONNECTIONS_MAX
from hostile.decent import Decent
from integration.dev.commands import Command, Commands

STRANGERS: Final = 3000
MOST: Final = MANAGEMENT_CONNECTIONS_MAX + 4 * ACCEPTS_PER_TURN_MAX
"""Those that are ended go a turn later, or two with TLS; and some are the node's own, to Redis, say."""
BEGUN: Final = (b"", b"GET /metrics HTTP/1.1\r\nHost: here\r\nX: ", b"\x16\x03\x01\x02\x00\x01")
TLS: Final = '[management]\ncertfile = "{folder}/server.pem"\nkeyfile = "{folder}/server.key"\n'


@pytest.fixture
def commands() -> Iterator[Commands]:
    started = Commands()
    yield started
    started.end_all()


@pytest.mark.parametrize("secured", [False, True])
def test_half_open_management_connections_cost_nobody_else(tmp_path: Path, commands: Commands, secured: bool) -> None:
    leaf = trustme.CA().issue_cert("localhost")
    leaf.private_key_pem.write_to_path(tmp_path / "server.key")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    (tmp_path / "node.toml").write_text(TLS.format(folder=tmp_path) if secured else "")
    command, told = commands.start_node("--config", str(tmp_path / "node.toml"), "--data-dir", str(tmp_path / "data"))
    before = descriptors(command)
    with strangers(told["management"]):
        assert descriptors(command) - before <= MOST
        assert probed(told["management"], secured) == 200
        with Decent(told["listeners"]["tcp:default"]) as decent:
            decent.p99_s()


@contextlib.contextmanager
def strangers(port: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, STRANGERS + 500)), hard))
    with contextlib.ExitStack() as stack:
        for number in range(STRANGERS):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10.0))
            with contextlib.suppress(ConnectionError):
                one.send(BEGUN[number % len(BEGUN)])
        yield


def descriptors(command: Command) -> int:
    return len(list(Path(f"/proc/{command.process.pid}/fd").iterdir()))


def probed(port: int, secured: bool) -> int:
    """As a kubelet does: it looks at no certificate."""
    connection = (
        http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=ssl._create_unverified_context())
        if secured
        else http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    )
    with contextlib.closing(connection):
        connection.request("GET", "/livez")
        return connection.getresponse().status
