"""A core remembers that it has left its cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.errors import LeftCluster
from flockmq.node import left_cluster
from flockmq.rlog.disk import Disk


def test_a_core_that_left_does_not_start_before_the_file_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "core-1"
    left_cluster.check(folder)
    left_cluster.write(Disk(folder), 1_800_000_000.0)
    file = folder / "left-cluster"
    assert file.read_text() == "2027-01-15T08:00:00+00:00\n"
    with pytest.raises(LeftCluster, match=f"delete {file} to have it join again"):
        left_cluster.check(folder)
    file.unlink()
    left_cluster.check(folder)


def test_to_leave_twice_is_to_leave_once(tmp_path: Path) -> None:
    for _ in range(2):
        left_cluster.write(Disk(tmp_path), 0.0)
    assert [path.name for path in tmp_path.iterdir()] == ["left-cluster"]
