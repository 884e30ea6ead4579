"""A hostile client costs itself only: the node's memory stays under a bound, the others hardly notice.

What a decent client notices is the 99th percentile of its round trips, during the attack and before it, in the same
run: at most twice as long, or no longer than the loop may take for one turn where that is more. A machine that
is busy with something else can spoil one measurement; the best of TRIES counts, and during the attack the last ones.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from conformance.wire import PUBLISH, V5, Wire, connect, publish
from hostile import attacks
from integration.dev.commands import Command, Commands

TRIES: Final = 3
ATTACK_S: Final = 3.0
ROUND_TRIPS: Final = 400
TURN_S: Final = 0.020
WORSE: Final = 2.0

GROWTH_MAX_MIB: Final = {
    "slow_reader": 64,
    "slow_loris": 64,
    "subscriptions": 64,
    "topics": 256,
    "aliases_and_identifiers": 32,
    "half_open": 64,
}
"""What the node may take more, at its peak, than before the attack."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[Command, int]]:
    commands = Commands()
    try:
        command, ports = commands.start_node("--data-dir", str(tmp_path))
        yield command, ports["mqtt"]
    finally:
        commands.end_all()


def peak_mib(command: Command) -> float:
    """The most memory that the node had resident since `forget_peak`."""
    status = Path(f"/proc/{command.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def forget_peak(command: Command) -> None:
    Path(f"/proc/{command.process.pid}/clear_refs").write_text("5")


class Decent(Wire):
    """A client that publishes to itself, one message at a time."""

    def __init__(self, port: int) -> None:
        super().__init__(port, V5)
        self.send(connect(V5, "decent"))
        assert self.next() is not None
        self.subscribe(("decent", 0))

    def p99_s(self) -> float:
        taken = []
        for _ in range(ROUND_TRIPS):
            begun = time.perf_counter()
            self.send(publish(V5, "decent", b"x"))
            assert self.expect(PUBLISH).payload == b"x"
            taken.append(time.perf_counter() - begun)
        return sorted(taken)[ROUND_TRIPS * 99 // 100]


@pytest.mark.parametrize("name", sorted(attacks.ATTACKS))
def test_an_attack_costs_its_attacker_only(node: tuple[Command, int], name: str) -> None:
    command, port = node
    with Decent(port) as decent:
        _endure(command, port, decent, name)


def _endure(command: Command, port: int, decent: Decent, name: str) -> None:
    decent.p99_s()
    before_s = min(decent.p99_s() for _ in range(TRIES))
    forget_peak(command)
    before_mib = peak_mib(command)
    attack = subprocess.Popen([sys.executable, attacks.__file__, name, str(port)], stdout=subprocess.PIPE)
    try:
        assert attack.stdout is not None
        assert attack.stdout.readline() == b"under way\n"
        during_s: list[float] = []
        until = time.monotonic() + ATTACK_S
        while time.monotonic() < until or len(during_s) < TRIES:
            during_s.append(decent.p99_s())
        assert attack.poll() is None, "the attack ended by itself"
    finally:
        attack.kill()
        attack.wait()
        assert attack.stdout is not None
        attack.stdout.close()
    grown_mib = peak_mib(command) - before_mib
    attacked_s = min(during_s[-TRIES:])
    sys.stdout.write(f"{name}: p99 {before_s:.4f} s, attacked {attacked_s:.4f} s, {grown_mib:.0f} MiB more\n")
    assert attacked_s <= max(WORSE * before_s, TURN_S), f"p99 before the attack {before_s}"
    assert grown_mib <= GROWTH_MAX_MIB[name]
    decent.quiet()
