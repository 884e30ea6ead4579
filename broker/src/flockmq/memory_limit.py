"""The memory limit of this process: that of its container, or the machine's memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_SYSTEM = Path("/")


def memory_bytes(root: Path = _SYSTEM) -> int:
    """The smallest of the machine's memory and the limits of this process's cgroups."""
    return min([_machine(root), *_limits(root)])


def _machine(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == "MemTotal":
            return int(amount.split()[0]) * 1024
    raise OSError("/proc/meminfo: no MemTotal")


def _limits(root: Path) -> Iterator[int]:
    """The limit of each cgroup from this process's own up to the topmost visible one, version 2 or 1."""
    try:
        own = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in own:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        for folder in (group, *group.parents):
            try:
                limit = (top / folder / name).read_text().strip()
            except OSError:
                continue
            if limit.isdigit():  # "max" means no limit
                yield int(limit)
