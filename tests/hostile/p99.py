"""How much longer others wait during an attack: `python tests/hostile/p99.py [ATTACK …]`.

One node, one decent client, rounds with and without the attack in turns; what is shown are the medians of the rounds'
99th percentiles, and their ratio. It asserts nothing: a machine that is busy with something else changes it.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from hostile import attacks
from hostile.decent import Decent, forget_peak, peak_mib, start
from integration.dev.commands import Command, Commands

ROUNDS: Final = 5
SAMPLES: Final = 5


def rounds(command: Command, ports: dict[str, int], name: str) -> str:
    quiet_s: list[float] = []
    attacked_s: list[float] = []
    with Decent(ports["tcp:default"]) as decent:
        decent.p99_s()
        forget_peak(command)
        before_mib = peak_mib(command)
        for _ in range(ROUNDS):
            quiet_s.append(statistics.median(decent.p99_s() for _ in range(SAMPLES)))
            attack = subprocess.Popen(attacks.command(name, ports), stdout=subprocess.PIPE)
            assert attack.stdout is not None
            assert attack.stdout.readline() == b"under way\n"
            attacked_s.append(statistics.median(decent.p99_s() for _ in range(SAMPLES)))
            attack.kill()
            attack.communicate()
            time.sleep(1.5)  # until the node has closed the last of its connections
        grown_mib = peak_mib(command) - before_mib
    quiet, attacked = statistics.median(quiet_s), statistics.median(attacked_s)
    ratio = f"{attacked / quiet:4.1f} ×"
    return f"{name:24} {quiet * 1e6:8.0f} µs {attacked * 1e6:8.0f} µs {ratio} {grown_mib:6.0f} MiB more"


def main(names: list[str]) -> None:
    print(f"{'attack':24} {'p99':>11} {'attacked':>11}")
    for name in names or sorted(attacks.ATTACKS):
        commands = Commands()
        with tempfile.TemporaryDirectory() as folder:
            try:
                command, ports = start(commands, Path(folder))
                print(rounds(command, ports, name), flush=True)
            finally:
                with contextlib.redirect_stdout(io.StringIO()):  # its log
                    commands.end_all()


if __name__ == "__main__":
    main(sys.argv[1:])
