"""The memory of a node: how much it may use, how much it uses, and from where on it is short of it.

container's limit, or machine's memory ─┬─▶ the embedded Valkey's part (`valkey_bytes`)
                                        └─▶ the node's part (`node_memory`) ─▶ MemoryMarks: short? full?
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from flockmq import bounds

_SYSTEM = Path("/")


class NodeMemory(NamedTuple):
    """What one node may use, and what it uses now, in bytes. `limit_bytes` 0: there is no limit."""

    limit_bytes: int
    resident_bytes: Callable[[], int]


ANY_MEMORY: Final = NodeMemory(0, lambda: 0)
"""There is no limit."""


class MemoryMarks:
    """How short of memory a node is. No I/O.

    `is_short`: from NODE_SHORT_PART of its memory on, until it uses less than NODE_ROOM_PART.
    `is_full`: from NODE_FULL_PART on, until it uses less than NODE_FULL_ENDS_PART."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.is_short = False
        self.is_full = False

    def looked(self, used_bytes: int) -> None:
        self.used_bytes = used_bytes
        part = used_bytes / self.limit_bytes if self.limit_bytes else 0.0
        self.is_short = part >= (bounds.NODE_ROOM_PART if self.is_short else bounds.NODE_SHORT_PART)
        self.is_full = part >= (bounds.NODE_FULL_ENDS_PART if self.is_full else bounds.NODE_FULL_PART)

    def excess_bytes(self) -> int:
        """How much must be freed so that it isn't full any more."""
        return max(0, self.used_bytes - int(self.limit_bytes * bounds.NODE_FULL_ENDS_PART))


def valkey_bytes(root: Path = _SYSTEM) -> int:
    """The `maxmemory` of an embedded Valkey. The rest of its part is for the pages that a rewrite of its file copies,
    and for what its allocator can't use."""
    return memory_bytes(root) // bounds.EMBEDDED_MEMORY_SHARE * bounds.EMBEDDED_MAXMEMORY_PERCENT // 100


def node_memory(*, has_valkey: bool, max_bytes: int = 0, root: Path = _SYSTEM) -> NodeMemory:
    """The memory of this process. `has_valkey`: an embedded Valkey has its part. `max_bytes`: what it may use at most;
    0: all of the rest."""
    limit_bytes = memory_bytes(root)
    if has_valkey:
        limit_bytes -= limit_bytes // bounds.EMBEDDED_MEMORY_SHARE
    return NodeMemory(min(limit_bytes, max_bytes or limit_bytes), lambda: _resident(root))


def memory_bytes(root: Path = _SYSTEM) -> int:
    """The smallest of the machine's memory and the limits of this process's cgroups."""
    return min([_machine(root), *_limits(root)])


def give_back() -> None:
    """Give memory that this process has freed back to the system, if the C library can: it keeps it otherwise."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _resident(root: Path) -> int:
    return int((root / "proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
