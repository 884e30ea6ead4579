"""A host's wall clock and fsync, wrong when told so: its processes have shim.c in front of the C library.

What outlives a host's processes: how wrong its clock is, and that its disk stalls. An fsync fails once.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import time
from pathlib import Path
from typing import Final

from faults import sandbox

COMPILER: Final = "cc"
SOURCE: Final = Path(__file__).with_suffix(".c")
LIBRARY: Final = sandbox.FOLDER / "shim.so"
_WALL: Final = struct.Struct("ddd")
_FLAG: Final = struct.Struct("i")
_WHICH: Final = 2 * _WALL.size
_STALLS: Final = _WHICH + _FLAG.size
_FAILS: Final = _STALLS + _FLAG.size


def can_be_built() -> bool:
    return shutil.which(COMPILER) is not None


def build() -> None:
    """Once, inside the sandbox."""
    sandbox.run(COMPILER, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(LIBRARY), str(SOURCE), "-ldl")


class Shim:
    """What one host is told; the layout is that of `struct told` in shim.c."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(bytes(_FAILS + _FLAG.size))
        with file.open("r+b") as opened:
            self._told = mmap.mmap(opened.fileno(), 0)

    def environment(self) -> dict[str, str]:
        """Of its processes."""
        return {"LD_PRELOAD": str(LIBRARY), "FAULTS_SHIM": str(self._file)} if LIBRARY.exists() else {}

    def shift_clock(self, seconds: float, drift: float) -> None:
        which = 1 - self._read(_WHICH)
        _WALL.pack_into(self._told, which * _WALL.size, seconds, drift, time.time())
        self._write(_WHICH, which)

    def stall_disk(self, stalls: bool) -> None:
        self._write(_STALLS, stalls)

    def fail_disk(self, fails: bool) -> None:
        self._write(_FAILS, fails)

    def _read(self, at: int) -> int:
        flag: int = _FLAG.unpack_from(self._told, at)[0]
        return flag

    def _write(self, at: int, flag: int) -> None:
        _FLAG.pack_into(self._told, at, flag)
