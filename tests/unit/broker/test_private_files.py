"""What holds secrets is this user's alone, whatever the umask, and what isn't this user's is left alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flockmq import private_files


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    former = os.umask(0)
    yield
    os.umask(former)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def folder_of(tmp_path: Path, rights: int) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "auth.snapshot").touch(0o644)
    (folder / "else").touch(0o644)
    folder.chmod(rights)
    return folder


def test_folders_are_made_private_with_those_above_them(tmp_path: Path) -> None:
    private_files.make_folder(tmp_path / "a/b")
    assert [mode(tmp_path / "a"), mode(tmp_path / "a/b")] == [0o700, 0o700]


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    private_files.make_folder(folder := folder_of(tmp_path, 0o755))
    assert mode(folder) == 0o755


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        private_files.make_folder(tmp_path / "file")


def test_a_file_is_private_also_where_one_was_that_all_may_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch(0o666)
    with file.open("rb") as opened_before, private_files.create(file) as opened:
        opened.write(b"secret")
        opened.flush()
        assert opened_before.read() == b""
    assert (mode(file), file.read_bytes()) == (0o600, b"secret")


def test_what_an_earlier_release_made_is_tightened(tmp_path: Path) -> None:
    private_files.tighten(folder := folder_of(tmp_path, 0o755), "*.snapshot")
    assert [mode(folder), mode(folder / "auth.snapshot"), mode(folder / "else")] == [0o700, 0o600, 0o644]


def test_a_folder_of_a_group_stays_the_groups(tmp_path: Path) -> None:
    private_files.tighten(folder := folder_of(tmp_path, 0o2775), "*.snapshot")
    assert [folder.stat().st_mode & 0o7777, mode(folder / "auth.snapshot")] == [0o2770, 0o600]


def test_a_folder_for_all_stays_so(tmp_path: Path) -> None:
    private_files.tighten(folder := folder_of(tmp_path, 0o1777), "*.snapshot")
    assert [mode(folder), mode(folder / "auth.snapshot")] == [0o777, 0o600]


def test_what_is_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path, 0o755)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    private_files.tighten(folder, "*.snapshot")
    assert [mode(folder), mode(folder / "auth.snapshot")] == [0o755, 0o644]


def test_what_may_not_be_changed_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path, 0o755)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "chmod", refuse)
    private_files.tighten(folder, "*.snapshot")
    assert mode(folder) == 0o755


def test_a_folder_that_is_not_there_yet_is_none(tmp_path: Path) -> None:
    private_files.tighten(tmp_path / "none", "*")
