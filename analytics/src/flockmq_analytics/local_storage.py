"""The output in a directory: of this machine, or of a volume that is mounted.

The lock is the kernel's, so it is free as soon as a run has ended, however it ended. A file gets its name by one
rename, on the same volume, after it has been synced.
"""

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from flockmq_analytics.storage import LOCK, STAGING, Found, OutputError, Storage

LOCK_TRY_S: Final = 0.5


class LocalStorage(Storage):
    def __init__(self, root: Path) -> None:
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    def path(self, name: str) -> Path:
        return self.root / name

    def url(self, name: str) -> str:
        return str(self.path(name))

    @contextmanager
    def locked(self, wait_s: float = 0.0) -> Iterator[str]:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = self.path(LOCK).open("a")
        except OSError as error:
            raise OutputError(f"the output directory {self} can't be written: {error.strerror}") from None
        with lock:
            until_s = time.monotonic() + wait_s
            while not _has_locked(lock.fileno()):
                if time.monotonic() >= until_s:
                    raise OutputError(f"another run is writing to {self}; wait for it to end")
                time.sleep(LOCK_TRY_S)
            self.remove_folder(STAGING)
            staging = f"{STAGING}/{secrets.token_hex(4)}"
            self.path(staging).mkdir(parents=True)
            try:
                yield staging
            finally:
                self.remove_folder(STAGING)

    def found(self, folder: str) -> list[Found]:
        files = [Path(parent, name) for parent, _, names in os.walk(self.path(folder)) for name in names]
        return sorted(Found(file.relative_to(self.root).as_posix(), file.stat().st_mtime) for file in files)

    def read(self, name: str) -> bytes:
        return self.path(name).read_bytes()

    def open(self, name: str) -> IO[bytes]:
        return self.path(name).open("rb")

    def write(self, name: str, content: bytes) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def publish(self, staged: str, name: str) -> None:
        source, target = self.path(staged), self.path(name)
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            _sync(target.parent.parent)
        _sync(source)
        source.replace(target)
        _sync(target.parent)

    def publish_folder(self, staged: str, folder: str, last: str) -> None:
        """By one rename. A run that is killed before it, with the former folder out of the way, leaves none."""
        source, target = self.path(staged), self.path(folder)
        target.parent.mkdir(exist_ok=True)
        for path in [*source.iterdir(), source]:
            _sync(path)
        if target.exists():
            target.replace(source.with_name(f"{source.name}-before"))
        source.replace(target)
        _sync(target.parent)

    def replace(self, staging: str, name: str, content: bytes) -> None:
        self.write(f"{staging}/{name}", content)
        self.publish(f"{staging}/{name}", name)

    def point(self, name: str, folder: str) -> None:
        """By a symbolic link."""
        link = self.path(name)
        fresh = link.with_name(f".{link.name}")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(folder)
        fresh.replace(link)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.path(name).unlink(missing_ok=True)
            with suppress(OSError):  # not empty
                self.path(name).parent.rmdir()

    def remove_folder(self, folder: str) -> None:
        shutil.rmtree(self.path(folder), ignore_errors=True)


def _has_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
