"""A core's folder. A new file is written beside the old one and then replaces it.

Invariant: after `replace` the new file is on disk under its name; before, the old one is, complete. Every method may
block, and raises OSError.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from flockmq import private_files


class Disk:
    """`folder` is created with the first file. Both are this user's alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """The file's path, for log lines and errors."""
        return self.folder / name

    def open(self, name: str) -> BinaryIO:
        return (self.folder / name).open("rb")

    def create(self, name: str) -> BinaryIO:
        private_files.make_folder(self.folder)
        return private_files.create(self.folder / name)

    def sync(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())

    def replace(self, beside: str, name: str) -> None:
        (self.folder / beside).replace(self.folder / name)
        directory = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def remove(self, name: str) -> None:
        """Remove the file if it exists."""
        (self.folder / name).unlink(missing_ok=True)
