"""The machine: its two cores, what it is called, and what a process tree on it takes."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path
from typing import Final

from flockbench.errors import BenchError

PROC: Final = Path("/proc")


def two_cores() -> tuple[int, int]:
    """The core of the broker and the core of the client: the first two that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("two cores are needed, one for the broker and one for the client; this process may use one")
    return cores[0], cores[1]


def open_files_limit(wanted: int) -> None:
    """Raise the limit of open files, which children inherit, to `wanted` at least."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if hard not in (unlimited,) and hard < wanted:
        raise BenchError(f"{wanted:,} open files are needed, {hard:,} are allowed: raise the hard limit (ulimit -Hn)")
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def description() -> str:
    """For the report: processor, cores, memory, kernel. No host name."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in (PROC / "cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, Linux {platform.release().partition('-')[0]}"


def family(pid: int) -> list[int]:
    """`pid` and its descendants, as far as they run."""
    parents: dict[int, int] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (stat := _read(folder / "stat")):
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = [pid]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def resident_bytes(pids: list[int]) -> int:
    """What the processes hold in memory together (VmRSS)."""
    lines = (line for pid in pids for line in _read(PROC / str(pid) / "status").splitlines())
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return ""
