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

from hostile import attacks
from hostile.decent import Decent, forget_peak, peak_mib, start
from integration.dev.commands import Command, Commands

TRIES: Final = 3
ATTACK_S: Final = 3.0
TURN_S: Final = 0.020
WORSE: Final = 2.0

GROWTH_MAX_MIB: Final = {
    "slow_reader": 64,
    "slow_loris": 64,
    "subscriptions": 64,
    "topics": 256,
    "aliases_and_identifiers": 32,
    "half_open": 64,
    "strangers": 32,
    "tls_strangers": 32,
    "tls_claimants": 32,
}
"""What the node may take more, at its peak, than before the attack."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[Command, dict[str, int]]]:
    commands = Commands()
    try:
        yield start(commands, tmp_path)
    finally:
        commands.end_all()


@pytest.mark.parametrize("name", sorted(attacks.ATTACKS))
def test_an_attack_costs_its_attacker_only(node: tuple[Command, dict[str, int]], name: str) -> None:
    command, ports = node
    with Decent(ports["tcp:default"]) as decent:
        _endure(command, ports, decent, name)


def _endure(command: Command, ports: dict[str, int], decent: Decent, name: str) -> None:
    decent.p99_s()
    before_s = min(decent.p99_s() for _ in range(TRIES))
    forget_peak(command)
    before_mib = peak_mib(command)
    attack = subprocess.Popen(attacks.command(name, ports), stdout=subprocess.PIPE)
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
