"""What one server holds in memory: keys and their values, when they expire, and what the running command changed.

A change is a write command that gives the same result whenever it is executed: IDs and times in it are absolute. A
command notes each of its changes in `changes`; the file on disk and the replicas get those, never the command itself.
"""

from __future__ import annotations

from typing import Final, TypeVar

from simulation.redis.stream import Stream

Arguments = list[bytes]
"""A command: its name, then its arguments."""
Change = Arguments


class Hash(dict[bytes, bytes]):
    pass


class Set(dict[bytes, None]):
    """Its keys are the members: a Python set has no order that could be relied upon."""


class SortedSet(dict[bytes, float]):
    pass


class Status(bytes):
    """A simple string: a client can't tell it from any other, a script can."""


Value = bytes | Hash | Set | SortedSet | Stream
Kind = TypeVar("Kind", bytes, Hash, Set, SortedSet, Stream)

OK: Final = Status(b"OK")
_INTEGER_MAX: Final = 2**63 - 1
_WRONG_TYPE: Final = "WRONGTYPE Operation against a key holding the wrong kind of value"


class CommandError(Exception):
    """What Redis answers in place of a reply: its whole text, the code first."""


class NotSimulatedError(Exception):
    """The broker sent what it never sent before: the simulated Redis has to learn it."""


class Keyspace:
    """`grown`: the streams that the running command added to. `expires_keys`: a primary deletes what is expired; its
    replicas only hide it until they are told. `scan_seed`: of the order in which a cursor goes, another one in each
    life of its server."""

    __slots__ = ("changes", "expires_at_ms", "expires_keys", "grown", "now_us", "scan_seed", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, Value] = {}
        self.expires_at_ms: dict[bytes, int] = {}
        self.changes: list[Change] = []
        self.grown: list[bytes] = []
        self.now_us = 0
        self.expires_keys = True
        self.scan_seed = 0

    def clear(self) -> None:
        self.values.clear()
        self.expires_at_ms.clear()
        self.changes = []
        self.grown = []

    def find(self, key: bytes) -> Value | None:
        at_ms = self.expires_at_ms.get(key)
        if at_ms is not None and self.now_us // 1000 > at_ms:
            if self.expires_keys:
                self.remove(key)
                self.changes.append([b"DEL", key])
            return None
        return self.values.get(key)

    def get(self, key: bytes, kind: type[Kind]) -> Kind | None:
        """Raises CommandError for a value of another kind."""
        value = self.find(key)
        if value is None or type(value) is kind:
            return value
        raise CommandError(_WRONG_TYPE)

    def make(self, key: bytes, kind: type[Kind]) -> Kind:
        """The value, an empty one if there was none."""
        value = self.get(key, kind)
        if value is None:
            value = self.values[key] = kind()
        return value

    def remove(self, key: bytes) -> bool:
        self.expires_at_ms.pop(key, None)
        return self.values.pop(key, None) is not None


def integer(text: bytes) -> int:
    """Of 64 bits, and written in the one way."""
    try:
        number = int(text)
    except ValueError:
        number = _INTEGER_MAX + 1
    if not -_INTEGER_MAX - 1 <= number <= _INTEGER_MAX or b"%d" % number != text:
        raise CommandError("ERR value is not an integer or out of range")
    return number
