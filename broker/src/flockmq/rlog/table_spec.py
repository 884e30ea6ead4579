"""How one table stands in the log: its number, its shard, and the forms of its keys and values there.

Nodes of several releases read one log, so a table, once it was released, keeps its number and the form of its keys; a
value may get fields at its end. A table that the first release doesn't have has a number from LATER to NUMBER_MAX: from
OWNED on where its rows' owner is part of their key. So a node that doesn't know a table can carry it all the same.
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
OWNED: Final = 128
NUMBER_MAX: Final = 255
_pack: Final = msgspec.msgpack.Encoder().encode


class TableSpec(Generic[K, V]):
    """A table: how to write to it. `split` gives (owner, key bytes) of a row to put; `join` gives the key back.
    `fields`: of values that are structs, how many they have; 0: whatever the value's bytes are, they are written again
    as they were read. `keeps(old, new)`: the row stays as it is, and what is put in its place has no effect.
    """

    __slots__ = (
        *("buckets", "decode", "encode", "head", "join", "keeps"),
        *("max_bytes", "max_rows", "name", "number", "shard", "split"),
    )

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
        self.head: Final = bytes([0x90 | fields]) if fields else b""
        """What a value begins with that has all fields that this release knows, and no others; msgpack's, up to 15."""
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


def carried(number: int, shard: str) -> TableSpec[object, bytes]:
    """Of a table that this release doesn't know."""
    spec: TableSpec[tuple[bytes, str], bytes] | TableSpec[bytes, bytes]
    if number >= OWNED:
        spec = TableSpec(number, str(number), shard, split=split_owned, join=join_owned, encode=bytes, decode=bytes)
    else:
        spec = TableSpec(number, str(number), shard, split=split_plain, join=join_plain, encode=bytes, decode=bytes)
    return cast(TableSpec[object, bytes], spec)


def without_later(first_fields: int) -> Callable[[msgspec.Struct], bytes]:
    """`encode` of structs that had so many fields in the release that first had them: what was appended is left out
    where it has its default, so a release that doesn't know it reads, and writes again, the same bytes. Who sets such a
    field asks for the cluster version that it came with.
    """

    def encode(value: msgspec.Struct) -> bytes:
        fields = list(msgspec.structs.astuple(value))
        defaults = value.__struct_defaults__
        while len(fields) > first_fields and fields[-1] == defaults[len(fields) - 1 - len(value.__struct_fields__)]:
            fields.pop()
        return _pack(fields)

    return encode


def split_owned(key: tuple[bytes, str], _: object) -> tuple[str, bytes]:
    """Of rows whose owner is part of their key."""
    return key[1], key[0]


def join_owned(owner: str, raw: bytes) -> tuple[bytes, str]:
    return raw, owner


def split_plain(key: bytes, _: object) -> tuple[str, bytes]:
    """Of rows that outlive nodes."""
    return "", key


def join_plain(_: str, raw: bytes) -> bytes:
    return raw


def split_text(key: str, _: object) -> tuple[str, bytes]:
    """Of rows that outlive nodes, and whose keys are texts."""
    return "", key.encode()


def join_text(_: str, raw: bytes) -> str:
    return raw.decode()


def no_value(_: None) -> bytes:
    return b""


def nothing(_: bytes) -> None:
    return None
