"""A row as a table keeps it: nothing that the garbage collector would look at, of which there may be a million."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

V = TypeVar("V")


class Row(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """`bytes` of its key and value in the log, and their digest."""

    value: V
    owner: str
    bytes: int
    digest: int


class RowAsLogged(Row[V], Generic[V], frozen=True, gc=False):
    """A row whose value this release would write otherwise: what a later one appended to it isn't read, but kept."""

    logged: bytes
