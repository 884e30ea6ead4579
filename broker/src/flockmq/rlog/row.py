"""A row as a table stores it: nothing that the garbage collector must visit, because there may be a million rows."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

V = TypeVar("V")


class Row(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """`bytes`: the size of its key and value in the log. `digest`: of both."""

    value: V
    owner: str
    bytes: int
    digest: int


class RowAsLogged(Row[V], Generic[V], frozen=True, gc=False):
    """A row that this release would encode differently: a later release appended fields, which this one keeps
    unread."""

    logged: bytes
