"""Folders and files that only this user may read, whatever the umask: they hold password hashes and messages."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o007
_GROUP_AND_OTHERS: Final = 0o077


def make_folder(folder: Path) -> None:
    """Make the folder and its missing parents, all of them private. One that is there stays as it is. Raises
    OSError."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=FOLDER_MODE, exist_ok=True)
    folder.mkdir(exist_ok=True)  # raises if it isn't a folder


def create(file: Path) -> BinaryIO:
    """Open a new, private file to write. One that is there is removed first: who may have opened it sees nothing of the
    new one. Raises OSError."""
    file.unlink(missing_ok=True)
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), "wb")


def tighten(folder: Path, pattern: str) -> None:
    """Take what others may do from the folder, and from its files of this pattern, which an earlier release made.

    What isn't this user's is left alone, as is what may not be changed, and a folder where all may write, such as /tmp.
    A folder of a Kubernetes volume that is made for a group (`fsGroup`: it has the setgid bit) stays the group's, or
    the kubelet would open all that is in it again.
    """
    with contextlib.suppress(OSError):
        mode = folder.stat().st_mode
        if not mode & stat.S_ISVTX:
            _withdraw(folder, _OTHERS if mode & stat.S_ISGID else _GROUP_AND_OTHERS)
        for file in folder.glob(pattern):
            _withdraw(file, _GROUP_AND_OTHERS)


def _withdraw(path: Path, rights: int) -> None:
    """Best effort."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        is_changeable = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
        if is_changeable and found.st_uid == os.geteuid() and found.st_mode & rights:
            path.chmod(stat.S_IMODE(found.st_mode) & ~rights)
