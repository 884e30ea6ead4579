"""Clients that take every connection they get leave the node the file descriptors that it needs itself."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from conformance.wire import CONNACK, V5, Wire, connect
from hostile.test_management import descriptors, probed
from integration.dev.commands import Commands

DESCRIPTORS: Final = 256
CLIENTS: Final = DESCRIPTORS + 100


@pytest.fixture
def commands() -> Iterator[Commands]:
    started = Commands()
    yield started
    started.end_all()


def test_a_node_whose_connections_are_all_taken_is_managed_and_takes_the_next_when_one_ends(
    tmp_path: Path, commands: Commands
) -> None:
    command, told = commands.begin_node("--data-dir", str(tmp_path / "data"))
    resource.prlimit(command.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    ports = commands.ready(command, told)
    port = ports["listeners"]["tcp:default"]
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(port, V5)) for _ in range(CLIENTS)]
        taken = [wire for number, wire in enumerate(wires) if _is_let_in(wire, number)]
        assert len(taken) == DESCRIPTORS // 2
        assert descriptors(command) < DESCRIPTORS
        assert probed(ports["management"], secured=False) == 200
        taken[0].vanish()
        with Wire(port, V5) as another:
            assert _is_let_in(another, CLIENTS)


def _is_let_in(wire: Wire, number: int) -> bool:
    with contextlib.suppress(OSError, EOFError):
        wire.send(connect(V5, f"c{number}"))
        packet = wire.next()
        return packet is not None and packet.kind == CONNACK
    return False
