"""A core's folder that outlives its processes: what was synced, and nothing else, is there after a crash."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import BinaryIO, cast

from flockmq.rlog.disk import Disk


class SimulatedDisk(Disk):
    """`files`: what is on disk, by name. `is_full`: not a byte more fits. `fails`: the next fsync
    does; `stalls`: nobody who waits for the disk goes on."""

    def __init__(self, name: str) -> None:
        super().__init__(Path(name))
        self.files: dict[str, bytes] = {}
        self.is_full = False
        self.fails = False
        self.stalls = False
        self._synced: dict[str, bytes] = {}
        """Written files that have no name of their own yet."""

    def open(self, name: str) -> BinaryIO:
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        return io.BytesIO(self.files[name])

    def create(self, name: str) -> BinaryIO:
        self._check()
        self._synced.pop(name, None)
        return cast(BinaryIO, _Written(self, name))

    def sync(self, file: BinaryIO) -> None:
        self._check()
        if self.fails:
            self.fails = False
            raise OSError(errno.EIO, "Input/output error")
        written = cast(_Written, file)
        self._synced[written.of] = written.getvalue()

    def replace(self, beside: str, name: str) -> None:
        self.files[name] = self._synced.pop(beside)

    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    def corrupt(self) -> None:
        """A bit in the middle of the largest file is another one."""
        name = max(self.files, key=lambda name: len(self.files[name]), default="")
        if not name:
            return
        content = bytearray(self.files[name])
        content[len(content) // 2] ^= 1
        self.files[name] = bytes(content)

    def _check(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")


class _Written(io.BytesIO):
    def __init__(self, disk: SimulatedDisk, of: str) -> None:
        super().__init__()
        self.disk = disk
        self.of = of

    def write(self, data: object) -> int:
        self.disk._check()
        return super().write(cast(bytes, data))
