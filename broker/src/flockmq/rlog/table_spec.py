"""How one table is encoded in the log: its number, its shard, and the form of its keys and values.

Nodes of several releases read one log. So a released table keeps its number and the form of its keys; its values may
get more fields at the end. Tables that the first release doesn't have get numbers from LATER to NUMBER_MAX. From OWNED
on, the owner of a row is part of its key. So a node can keep the rows of a table that it doesn't know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

import msgspec

from flockmq import bounds
from flockmq.rlog.entry import DELETE, PUT, Op

K = TypeVar("K")
V = TypeVar("V")
LATER: Final = 64
"""The first number of tables that the first release doesn't have."""
OWNED: Final = 128
"""The first number of those whose rows have their owner in the key."""
NUMBER_MAX: Final = 255
_pack: Final = msgspec.msgpack.Encoder().encode


class TableSpec(Generic[K, V]):
    """Describes a table and makes ops that write to it.

    - `split` returns (owner, key bytes) of a row; `join` returns the key.
    - `fields`: for values that are structs, the number of their fields. 0: values are written again byte for byte.
    - `keeps(old, new)`: True if the old row stays and the new one has no effect.
    """

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
        fields: int = 0,
        buckets: int = 16,
        max_rows: int = bounds.LOG_TABLE_MAX_ROWS,
        max_bytes: int = bounds.LOG_TABLE_MAX_BYTES,
        keeps: Callable[[V, V], bool] | None = None,
    ) -> None:
        self.number: Final = number
        self.name: Final = name
        self.shard: Final = shard
        self.split: Final = split
        self.join: Final = join
        self.encode: Final = encode
        self.decode: Final = decode
        self.value_prefix: Final = bytes([0x90 | fields]) if fields else b""
        """The first byte of a value that has exactly the fields that this release knows: msgpack's array header, up to
        15 fields."""
        self.buckets: Final = buckets
        self.keeps: Final = keeps
        self.max_rows = max_rows
        self.max_bytes = max_bytes

    def put(self, key: K, value: V) -> Op:
        owner, raw = self.split(key, value)
        return self.number, PUT, owner, raw, self.encode(value)

    def delete(self, key: K) -> Op:
        owner, raw = self.split(key, None)
        return self.number, DELETE, owner, raw, b""


def unknown_table_spec(number: int, shard: str) -> TableSpec[object, bytes]:
    """The spec of a table that this release doesn't know."""
    spec: TableSpec[tuple[bytes, str], bytes] | TableSpec[bytes, bytes]
    if number >= OWNED:
        spec = TableSpec(number, str(number), shard, split=split_owned, join=join_owned, encode=bytes, decode=bytes)
    else:
        spec = TableSpec(number, str(number), shard, split=split_plain, join=join_plain, encode=bytes, decode=bytes)
    return cast(TableSpec[object, bytes], spec)


def without_later(first_fields: int) -> Callable[[msgspec.Struct], bytes]:
    """`encode` for structs that had `first_fields` fields when they were first released. Later fields at the end are
    left out while they have their defaults, so an older release reads and writes the same bytes. Code that sets such a
    field must check the cluster version that introduced it."""

    def encode(value: msgspec.Struct) -> bytes:
        fields = list(msgspec.structs.astuple(value))
        defaults = value.__struct_defaults__
        while len(fields) > first_fields and fields[-1] == defaults[len(fields) - 1 - len(value.__struct_fields__)]:
            fields.pop()
        return _pack(fields)

    return encode


def split_owned(key: tuple[bytes, str], _: object) -> tuple[str, bytes]:
    """For rows whose owner is part of their key."""
    return key[1], key[0]


def join_owned(owner: str, raw: bytes) -> tuple[bytes, str]:
    return raw, owner


def split_plain(key: bytes, _: object) -> tuple[str, bytes]:
    """For rows that outlive nodes."""
    return "", key


def join_plain(_: str, raw: bytes) -> bytes:
    return raw


def split_text(key: str, _: object) -> tuple[str, bytes]:
    """For rows that outlive nodes, with text keys."""
    return "", key.encode()


def join_text(_: str, raw: bytes) -> str:
    return raw.decode()


def no_value(_: None) -> bytes:
    return b""


def nothing(_: bytes) -> None:
    return None
