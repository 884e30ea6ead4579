"""A core's folder, and all that is written into it, is its user's alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flockmq.rlog.disk import Disk


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_the_folder_and_its_files_are_private(tmp_path: Path, umask: int) -> None:
    former = os.umask(umask)
    try:
        disk = Disk(tmp_path / "data/core-1")
        with disk.create("auth.writing") as file:
            file.write(b"hashes")
            disk.sync(file)
        disk.replace("auth.writing", "auth.snapshot")
    finally:
        os.umask(former)
    paths = (tmp_path / "data", disk.folder, disk.path("auth.snapshot"))
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o700, 0o700, 0o600]


def test_what_an_earlier_release_left_half_written_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "auth.writing").touch(0o644)
    with Disk(tmp_path).create("auth.writing"):
        assert (tmp_path / "auth.writing").stat().st_mode & 0o777 == 0o600
