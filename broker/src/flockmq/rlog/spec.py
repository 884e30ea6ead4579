"""How one table stands in the log: its number, its shard, and the forms of its keys and values there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from flockmq import bounds
from flockmq.rlog.entry import DELETE, PUT, Op

K = TypeVar("K")
V = TypeVar("V")


class TableSpec(Generic[K, V]):
    """A table: how to write to it. `split` gives (owner, key bytes) of a row to put; `join` gives the key back."""

    __slots__ = (*("buckets", "decode", "encode", "join", "max_bytes", "max_rows", "name", "number", "shard", "split"),)

    def __init__(
        self,
        number: int,
        name: str,
        shard: str,
        *,
        split: Callable[[K, V | None], tuple[str, bytes]],
        join: Callable[[str, bytes], K],
        encode: Callable[[V], bytes],
        decode: Callable[[bytes], V],
        buckets: int = 16,
        max_rows: int = bounds.LOG_TABLE_MAX_ROWS,
        max_bytes: int = bounds.LOG_TABLE_MAX_BYTES,
    ) -> None:
        self.number: Final = number
        self.name: Final = name
        self.shard: Final = shard
        self.split: Final = split
        self.join: Final = join
        self.encode: Final = encode
        self.decode: Final = decode
        self.buckets: Final = buckets
        self.max_rows = max_rows
        self.max_bytes = max_bytes

    def put(self, key: K, value: V) -> Op:
        owner, raw = self.split(key, value)
        return self.number, PUT, owner, raw, self.encode(value)

    def delete(self, key: K) -> Op:
        owner, raw = self.split(key, None)
        return self.number, DELETE, owner, raw, b""


def split_owned(key: tuple[bytes, str], _: object) -> tuple[str, bytes]:
    """Of rows whose owner is part of their key."""
    return key[1], key[0]


def join_owned(owner: str, raw: bytes) -> tuple[bytes, str]:
    return raw, owner


def no_value(_: None) -> bytes:
    return b""


def nothing(_: bytes) -> None:
    return None
