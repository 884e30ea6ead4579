"""`python -m faults.launch run …` is `flockmq run …` with a wall clock that jumps when told to, and a bug if asked for.

FAULTS_CLOCK names a file of 8 bytes, a float of seconds in this machine's byte order, that is added to the wall clock;
the monotonic one runs on, as it does when somebody sets a machine's time. FAULTS_BUG names one of `bugs.BUGS`.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path


def install_clock(file: Path) -> None:
    with file.open("r+b") as opened:
        offset = mmap.mmap(opened.fileno(), 8)
    true_time, true_time_ns, read = time.time, time.time_ns, struct.Struct("d").unpack_from

    def shifted() -> float:
        return true_time() + float(read(offset)[0])

    def shifted_ns() -> int:
        return true_time_ns() + int(read(offset)[0] * 1e9)

    time.time, time.time_ns = shifted, shifted_ns


def main() -> None:
    if clock := os.environ.get("FAULTS_CLOCK"):
        install_clock(Path(clock))
    from flockmq import cli

    if bug := os.environ.get("FAULTS_BUG"):
        from faults import bugs

        bugs.install(bug)
    cli.main()


if __name__ == "__main__":
    main()
