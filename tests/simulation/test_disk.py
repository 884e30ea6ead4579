"""What is on a simulated disk after a crash, and what a disk that fails says."""

from __future__ import annotations

import errno

import pytest

from flockmq.rlog.disk import Disk
from simulation.disk import SimulatedDisk

NAME, BESIDE = "snapshot", "snapshot.new"


@pytest.fixture
def disk() -> SimulatedDisk:
    """With a file."""
    made = SimulatedDisk("core-1")
    keep(made, b"old")
    return made


def keep(disk: Disk, content: bytes, name: str = NAME) -> None:
    """As all that keep a file do it."""
    with disk.create(BESIDE) as file:
        file.write(content)
        disk.sync(file)
    disk.replace(BESIDE, name)


def read(disk: Disk, name: str = NAME) -> bytes:
    with disk.open(name) as file:
        return file.read()


def test_what_was_kept_is_read(disk: SimulatedDisk) -> None:
    keep(disk, b"new")
    assert read(disk) == b"new"
    assert str(disk.path(NAME)) == "core-1/snapshot"


def test_a_file_is_the_old_one_until_the_new_one_takes_its_place(disk: SimulatedDisk) -> None:
    with disk.create(BESIDE) as file:
        file.write(b"new")
        assert read(disk) == b"old"
        disk.sync(file)
        assert read(disk) == b"old"
        with disk.open(NAME) as old:
            disk.replace(BESIDE, NAME)
            assert (old.read(), read(disk)) == (b"old", b"new")


def test_what_was_written_behind_the_last_sync_is_gone(disk: SimulatedDisk) -> None:
    with disk.create(BESIDE) as file:
        file.write(b"new")
        disk.sync(file)
        file.write(b" and newer")
    disk.replace(BESIDE, NAME)
    assert read(disk) == b"new"


def test_what_was_never_synced_takes_nobodys_place(disk: SimulatedDisk) -> None:
    keep(disk, b"new")
    with disk.create(BESIDE) as file:
        file.write(b"newer")
    with pytest.raises(KeyError):
        disk.replace(BESIDE, NAME)
    assert read(disk) == b"new"


def test_a_file_that_is_begun_anew_is_not_synced_any_more(disk: SimulatedDisk) -> None:
    with disk.create(BESIDE) as file:
        file.write(b"new")
        disk.sync(file)
    disk.create(BESIDE).close()
    with pytest.raises(KeyError):
        disk.replace(BESIDE, NAME)


def test_a_file_that_is_removed_or_never_was_is_missing(disk: SimulatedDisk) -> None:
    disk.remove(NAME)
    disk.remove(NAME)
    with pytest.raises(FileNotFoundError):
        disk.open(NAME)


def test_on_a_full_disk_nothing_is_written_and_all_is_read(disk: SimulatedDisk) -> None:
    with disk.create(BESIDE) as file:
        file.write(b"n")
        disk.is_full = True
        for fails in (lambda: disk.create("another"), lambda: file.write(b"ew"), lambda: disk.sync(file)):
            with pytest.raises(OSError, match="No space left") as error:
                fails()
            assert error.value.errno == errno.ENOSPC
    assert read(disk) == b"old"
    disk.is_full = False
    keep(disk, b"new")
    assert read(disk) == b"new"


def test_one_fsync_fails_and_the_old_file_stays(disk: SimulatedDisk) -> None:
    disk.fails = True
    with pytest.raises(OSError, match="Input/output") as error:
        keep(disk, b"new")
    assert error.value.errno == errno.EIO
    assert read(disk) == b"old"
    keep(disk, b"new")
    assert read(disk) == b"new"


def test_one_bit_of_the_largest_file_is_wrong(disk: SimulatedDisk) -> None:
    keep(disk, bytes(99), "larger")
    disk.corrupt()
    assert read(disk) == b"old"
    assert sum(byte.bit_count() for byte in read(disk, "larger")) == 1


def test_an_empty_disk_has_nothing_to_corrupt() -> None:
    disk = SimulatedDisk("core-1")
    disk.corrupt()
    assert disk.files == {}
