"""Where the output lies: a directory of this machine, or below a prefix of an S3 bucket.

A name is a path below the output, with `/`. What holds wherever it lies:

- one run at a time holds the lock; it has a staging folder of its own, and what a killed run left there goes;
- a file is whole when it has its name (`publish`), and a document changes at once (`replace`);
- a document that somebody else has changed since this run read it isn't replaced. So a run that has lost its lock
  changes nothing that counts.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import IO, Final, NamedTuple

STAGING: Final = ".staging"
LOCK: Final = ".lock"


class OutputError(RuntimeError):
    """The output can't be used; the message says why."""


class Found(NamedTuple):
    name: str
    changed_s: float
    """In seconds since 1970."""


class Storage(ABC):
    """Raises OutputError where the output can't be read or written."""

    @abstractmethod
    def url(self, name: str) -> str:
        """As Spark reads and writes it."""

    @abstractmethod
    def locked(self, wait_s: float = 0.0) -> AbstractContextManager[str]:
        """Hold the output, made if it isn't there; yields the name of an empty staging folder. While another run holds
        it wait up to `wait_s`, then raise OutputError."""

    @abstractmethod
    def found(self, folder: str) -> list[Found]:
        """The files below a folder, at any depth, in order; none where there is no folder."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError."""

    @abstractmethod
    def open(self, name: str) -> IO[bytes]:
        """To read parts of a file; raises FileNotFoundError."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """A file of the staging folder."""

    @abstractmethod
    def publish(self, staged: str, name: str) -> None:
        """Give a staged file its name, durably, in place of the one that has it."""

    @abstractmethod
    def publish_folder(self, staged: str, folder: str, last: str) -> None:
        """The like of a folder's files. Its file `last` says that the folder is whole."""

    @abstractmethod
    def replace(self, staging: str, name: str, content: bytes) -> None:
        """Change a document that this run has read, or make it where there was none."""

    @abstractmethod
    def point(self, name: str, folder: str) -> None:
        """Let `name` lead to a folder that stands beside it."""

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Files; gone already is fine."""

    @abstractmethod
    def remove_folder(self, folder: str) -> None:
        """With all that is in it; gone already is fine."""
