"""CPU and memory of a running broker and its child processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def family(pids: Sequence[int]) -> list[int]:
    """The processes and all their descendants that still run."""
    parents: dict[int, int] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            parents[int(folder.name)] = int(fields[1])
    found = list(pids)
    for member in found:
        found += [child for child, parent in parents.items() if parent == member and child not in found]
    return found


def resident_bytes(pids: Sequence[int]) -> int:
    """The resident memory of all these processes (VmRSS)."""
    lines = (line for pid in pids for line in _read(PROC / str(pid) / "status").splitlines())
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def cpu_s(pids: Sequence[int]) -> float:
    """The user and system CPU time of all these processes."""
    return sum(int(fields[11]) + int(fields[12]) for pid in pids if (fields := _stat(pid))) / TICKS_PER_S


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command's name, beginning with the third; none if the
    process has ended.
    """
    return _read(PROC / str(pid) / "stat").rpartition(")")[2].split()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):  # It has ended meanwhile.
        return ""
