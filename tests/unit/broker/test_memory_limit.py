"""A process' memory, by the files of a machine or container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flockmq import bounds
from flockmq.memory_limit import MemoryMarks, give_back, memory_bytes, node_memory, valkey_bytes

GIB = 1024**3


def machine(root: Path, cgroup: str | None, **limits: str) -> Path:
    files = {"proc/meminfo": f"MemFree: 1 kB\nMemTotal:       {16 * GIB // 1024} kB\n", **limits}
    if cgroup is not None:
        files["proc/self/cgroup"] = cgroup
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("cgroup", "limits", "expected"),
    [
        (None, {}, 16 * GIB),
        ("0::/\n", {}, 16 * GIB),
        ("0::/\n", {"sys/fs/cgroup/memory.max": "max\n"}, 16 * GIB),
        ("0::/\n", {"sys/fs/cgroup/memory.max": f"{GIB}\n"}, GIB),  # a container
        ("0::/pods/a\n", {"sys/fs/cgroup/pods/a/memory.max": f"{2 * GIB}\n"}, 2 * GIB),
        (
            "0::/pods/a\n",
            {"sys/fs/cgroup/pods/memory.max": f"{GIB}\n", "sys/fs/cgroup/pods/a/memory.max": "max\n"},
            GIB,
        ),
        ("5:cpu:/\n4:memory:/docker/a\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n"}, GIB),
        ("4:memory:/\n0::/\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 16 * GIB),
    ],
)
def test_it_is_the_least_of_the_limits_and_what_the_machine_has(
    tmp_path: Path, cgroup: str | None, limits: dict[str, str], expected: int
) -> None:
    assert memory_bytes(machine(tmp_path, cgroup, **limits)) == expected


def test_this_process_has_some() -> None:
    memory = node_memory(has_valkey=False)
    assert memory.limit_bytes == memory_bytes() > memory.resident_bytes() > 0
    give_back()


def test_an_embedded_valkey_has_a_part_of_it_and_maxmemory_is_less(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/\n", **{"sys/fs/cgroup/memory.max": f"{GIB}\n"})
    part = GIB - node_memory(has_valkey=True, root=root).limit_bytes
    assert part == GIB // bounds.EMBEDDED_MEMORY_SHARE
    assert valkey_bytes(root) == part * bounds.EMBEDDED_MAXMEMORY_PERCENT // 100
    assert node_memory(has_valkey=False, root=root).limit_bytes == GIB
    assert node_memory(has_valkey=False, max_bytes=1000, root=root).limit_bytes == 1000
    assert node_memory(has_valkey=False, max_bytes=2 * GIB, root=root).limit_bytes == GIB


def test_what_is_resident_is_counted_in_pages(tmp_path: Path) -> None:
    root = machine(tmp_path, None, **{"proc/self/statm": "300 200 100 1 0 50 0\n"})
    assert node_memory(has_valkey=False, root=root).resident_bytes() == 200 * os.sysconf("SC_PAGE_SIZE")


def test_a_node_is_short_and_then_full_until_it_has_room_again() -> None:
    marks = MemoryMarks(1000)
    found = []
    for used in (749, 750, 849, 850, 800, 799, 700, 699, 850):
        marks.looked(used)
        found.append((marks.is_short, marks.is_full))
    both, short, none = (True, True), (True, False), (False, False)
    assert found == [none, short, short, both, both, short, short, none, both]
    assert marks.excess_bytes() == 50
    marks.looked(10)
    assert marks.excess_bytes() == 0


def test_without_a_limit_it_is_never_short() -> None:
    marks = MemoryMarks(0)
    marks.looked(GIB)
    assert (marks.is_short, marks.is_full) == (False, False)
