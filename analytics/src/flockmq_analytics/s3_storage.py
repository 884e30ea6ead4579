"""The output below a prefix of an S3 bucket, by Hadoop's `s3a`: with the credentials and the endpoint that Spark has.

S3 has no rename and no lock. What stands in for them is its conditional PUT, which Amazon's S3, MinIO and others have:
an object is written only if there is none of its name, or only if it still has the version (ETag) that was read.

- The lock is an object that its holder writes anew every RENEW_S. Who sees the same version for LEASE_S takes it over.
  No clocks are compared.
- A document is replaced only at the version that was read. So where two runs believe that they hold the lock, one of
  them changes it, and the other one fails.
- A staged file gets its name by a copy within S3, whole or not at all; a run's names are used by no other run. A
  folder has its last file while it is whole, and only then.

A store that ignores the conditions would lose events in silence: so each run tries it, and refuses such a store.
"""

import io
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, cast

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from flockmq_analytics.storage import LOCK, STAGING, Found, OutputError, Storage

SCHEME: Final = "s3a://"
LEASE_S: Final = 60.0
RENEW_S: Final = 15.0
LOCK_TRY_S: Final = 2.0
ONLY_NEW: Final = "fs.option.create.conditional.overwrite"
ONLY_VERSION: Final = "fs.option.create.conditional.overwrite.etag"
ERROR_MAX_CHARS: Final = 300

_NOT_FOUND: Final = "java.io.FileNotFoundException"
_CHANGED: Final = (
    "org.apache.hadoop.fs.FileAlreadyExistsException",
    "org.apache.hadoop.fs.s3a.RemoteFileChangedException",
)


class _Changed(Exception):
    """The object isn't as the condition says."""


class S3Storage(Storage):
    def __init__(self, spark: SparkSession, url: str) -> None:
        """`url`: s3a://BUCKET or s3a://BUCKET/PREFIX."""
        self._url = url.rstrip("/")
        jvm: Any = spark.sparkContext._jvm
        java: Any = spark.sparkContext._jsc
        self._path: Callable[[str], Any] = jvm.org.apache.hadoop.fs.Path
        self._versions: dict[str, str] = {}
        self._lost = threading.Event()
        with _told(self):
            self._files: Any = self._path(self._url).getFileSystem(java.hadoopConfiguration())

    def __str__(self) -> str:
        return self._url

    def url(self, name: str) -> str:
        return f"{self._url}/{name}"

    @contextmanager
    def locked(self, wait_s: float = 0.0) -> Iterator[str]:
        run = secrets.token_hex(4)
        version = self._take_lock(run, wait_s)
        if self._put(LOCK, b"", ""):
            raise OutputError(f"{self}: this store ignores If-None-Match, so two runs could undo one another's work")
        self._lost.clear()
        ended = threading.Event()
        renewal = threading.Thread(target=self._renew, args=(run, version, ended), daemon=True)
        renewal.start()
        try:
            self.remove_folder(STAGING)
            yield f"{STAGING}/{run}"
        finally:
            ended.set()
            renewal.join()
            if not self._lost.is_set():
                self.remove_folder(STAGING)
                self.remove([LOCK])

    def found(self, folder: str) -> list[Found]:
        names: list[Found] = []
        with _told(self):
            try:
                listed = self._files.listFiles(self._path(self.url(folder)), True)
                while listed.hasNext():
                    status = listed.next()
                    name = status.getPath().toString().removeprefix(f"{self._url}/")
                    names.append(Found(name, status.getModificationTime() / 1000))
            except Py4JJavaError as error:
                if _kind(error) != _NOT_FOUND:
                    raise
        return sorted(names)

    def read(self, name: str) -> bytes:
        """At the version that `replace` then expects."""
        content, self._versions[name] = self._read(name)
        return content

    def open(self, name: str) -> IO[bytes]:
        with _told(self, name):
            path = self._path(self.url(name))
            status = self._files.getFileStatus(path)
            source = self._files.openFile(path).withFileStatus(status).build().get()
        return cast("IO[bytes]", _Reader(source, status.getLen()))

    def write(self, name: str, content: bytes) -> None:
        with _told(self):
            _fill(self._files.create(self._path(self.url(name)), True), content)

    def publish(self, staged: str, name: str) -> None:
        with _told(self):
            target = self._path(self.url(name))
            self._files.delete(target, False)
            if not self._files.rename(self._path(self.url(staged)), target):
                raise OutputError(f"{self.url(staged)} couldn't be copied to {name}")

    def publish_folder(self, staged: str, folder: str, last: str) -> None:
        """File by file: meanwhile the folder has no `last`."""
        self.remove([f"{folder}/{last}"])
        names = [found.name.removeprefix(f"{staged}/") for found in self.found(staged)]
        for name in sorted(names, key=lambda name: name == last):
            self.publish(f"{staged}/{name}", f"{folder}/{name}")
        self.remove(one.name for one in self.found(folder) if one.name.removeprefix(f"{folder}/") not in names)

    def replace(self, staging: str, name: str, content: bytes) -> None:
        version = "" if self._lost.is_set() else self._put(name, content, self._versions.get(name, ""))
        if not version:
            raise OutputError(f"another run has changed {self.url(name)} meanwhile; this one changed nothing")
        self._versions[name] = version

    def point(self, name: str, folder: str) -> None:
        """By an object that holds the folder's name."""
        self.write(name, folder.encode())

    def remove(self, names: Iterable[str]) -> None:
        with _told(self):
            for name in names:
                self._files.delete(self._path(self.url(name)), False)

    def remove_folder(self, folder: str) -> None:
        with _told(self):
            self._files.delete(self._path(self.url(folder)), True)

    # The lock

    def _take_lock(self, run: str, wait_s: float) -> str:
        """Returns the version of the lock. Whoever holds it is believed to be dead after LEASE_S without a sign."""
        until_s = time.monotonic() + wait_s
        seen, since_s = "", 0.0
        while True:
            held = self._version(LOCK)
            if held != seen:
                seen, since_s = held, time.monotonic()
            is_free = not held or time.monotonic() - since_s >= LEASE_S
            if is_free and (version := self._put(LOCK, run.encode(), held)):
                return version
            if time.monotonic() >= until_s:
                raise OutputError(f"another run is writing to {self}; wait for it to end")
            time.sleep(LOCK_TRY_S)

    def _renew(self, run: str, version: str, ended: threading.Event) -> None:
        """Until it has ended, or somebody else has the lock."""
        number, renewed_s = 0, time.monotonic()
        while not ended.wait(RENEW_S):
            number += 1
            try:
                version, renewed_s = self._put(LOCK, f"{run} {number}".encode(), version), time.monotonic()
            except OutputError:  # S3 can't be reached
                if time.monotonic() - renewed_s < LEASE_S:
                    continue
                version = ""
            if not version:
                self._lost.set()
                return

    def _put(self, name: str, content: bytes, version: str) -> str:
        """Write an object if it has this version, or, for "", if there is none. Returns its new version; "": it was
        not so. A PUT whose answer was lost is tried again by the SDK, and finds itself: so what is there counts."""
        try:
            with _told(self, name):
                builder = self._files.createFile(self._path(self.url(name))).overwrite(True)
                _fill(
                    (builder.must(ONLY_VERSION, version) if version else builder.must(ONLY_NEW, True)).build(), content
                )
        except (_Changed, FileNotFoundError):
            pass
        try:
            there, found = self._read(name)
        except FileNotFoundError:
            return ""
        return found if there == content else ""

    def _version(self, name: str) -> str:
        """ "": there is no such object."""
        try:
            return self._read(name)[1]
        except FileNotFoundError:
            return ""

    def _read(self, name: str) -> tuple[bytes, str]:
        """The content of an object, and its version."""
        with _told(self, name):
            path = self._path(self.url(name))
            status = self._files.getFileStatus(path)
            source = self._files.openFile(path).withFileStatus(status).build().get()
            try:
                content: bytes = source.readAllBytes()
            finally:
                source.close()
            version: str = status.getEtag()
        return content, version


class _Reader(io.RawIOBase):
    """A file of Hadoop as one of Python."""

    def __init__(self, source: Any, size: int) -> None:
        super().__init__()
        self._source, self._size, self._position = source, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._position)
        if length <= 0:
            return 0
        self._source.seek(self._position)
        read: bytes = self._source.readNBytes(length)
        buffer[: len(read)] = read
        self._position += len(read)
        return len(read)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def _fill(stream: Any, content: bytes) -> None:
    stream.write(bytearray(content))
    stream.close()


@contextmanager
def _told(storage: S3Storage, name: str = "") -> Iterator[None]:
    """What Java raises, as what Python's callers expect."""
    try:
        yield
    except Py4JJavaError as error:
        kind = _kind(error)
        if kind == _NOT_FOUND:
            raise FileNotFoundError(storage.url(name)) from None
        if kind in _CHANGED:
            raise _Changed from None
        message = str(error.java_exception.getMessage()).partition("\n")[0][:ERROR_MAX_CHARS]
        raise OutputError(f"{storage} can't be used: {message}") from None


def _kind(error: Py4JJavaError) -> str:
    """The Java exception's class; of what a future raises, the cause's."""
    exception = error.java_exception
    kind: str = exception.getClass().getName()
    while kind.startswith("java.util.concurrent.") and exception.getCause() is not None:
        exception = exception.getCause()
        kind = exception.getClass().getName()
    return kind
