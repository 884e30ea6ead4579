"""`flockmq ctl tables`: saves a core's tables as files, which a backup of Redis needs beside it.

The log in Redis is trimmed: what it no longer has is in the snapshots on the cores' disks alone. So a backup is these
tables, saved first, and then a snapshot of Redis whose log still has the entry of each position in `positions`.
They hold password hashes: files, and folders that are made for them, are this user's alone.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flockmq import private_files
from flockmq.ctl.api import Api, CtlError, Row, path
from flockmq.ctl.verbs import Verbs, add_verb
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.schema import SHARDS
from flockmq.rlog.snapshot import check, name_of

POSITIONS: Final = "positions"
"""The file with a line for each shard: its name, and the log position of its tables."""


def add(verbs: Verbs) -> None:
    save = add_verb(verbs, "save", "into a folder, from the core at --url", _save)
    save.add_argument("folder", type=Path, metavar="FOLDER", help="made if need be; tables that are there are replaced")


def _save(api: Api, options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row per shard, when all are on disk. Positions of an earlier run go first: they would be wrong."""
    positions = options.folder / POSITIONS
    try:
        private_files.make_folder(options.folder)
        positions.unlink(missing_ok=True)
    except OSError as error:
        raise CtlError(f"{str(options.folder)!r} can't be used: {error.strerror}") from None
    rows = [{"shard": shard, **_save_shard(api, options.folder, shard)} for shard in SHARDS]
    _write(positions, "".join(f"{row['shard']} {row['position']}\n" for row in rows).encode())
    yield from rows


def _save_shard(api: Api, folder: Path, shard: str) -> dict[str, object]:
    file = folder / name_of(shard)
    try:
        with private_files.create(file) as opened:
            api.download(path("tables", shard), opened)
            opened.flush()
            os.fsync(opened.fileno())
        with file.open("rb") as saved:
            return {"position": str(check(saved)), "bytes": file.stat().st_size}
    except LogCorrupt as error:
        raise CtlError(f"{str(file)!r} is broken: {error}; try again") from None
    except OSError as error:
        raise CtlError(f"{str(file)!r} can't be written: {error.strerror}") from None


def _write(file: Path, data: bytes) -> None:
    try:
        with private_files.create(file) as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        raise CtlError(f"{str(file)!r} can't be written: {error.strerror}") from None
