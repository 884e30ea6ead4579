"""The file by which a core remembers that it has left its cluster. While it is there, the core doesn't start."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Final

from flockmq.errors import LeftCluster
from flockmq.rlog.disk import Disk

FILE: Final = "left-cluster"


def write(disk: Disk, wall_s: float) -> None:
    """Blocks until the file is on disk. Raises OSError."""
    beside = f"{FILE}.writing"
    with disk.create(beside) as file:
        file.write(datetime.datetime.fromtimestamp(wall_s, datetime.UTC).isoformat(timespec="seconds").encode() + b"\n")
        disk.sync(file)
    disk.replace(beside, FILE)


def check(folder: Path) -> None:
    """Raises LeftCluster if the core whose folder this is has left."""
    path = folder / FILE
    if path.exists():
        raise LeftCluster(
            f"this core left its cluster, and isn't to come back by itself: delete {path} to have it join again"
        )
