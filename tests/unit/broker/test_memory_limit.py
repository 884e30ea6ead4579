"""A process' memory, by the files of a machine or container."""

from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.memory_limit import memory_bytes

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
    assert memory_bytes() > 0
