"""The format of log entries, byte for byte.

A shard's stream holds three kinds of entries. Each entry has one field, whose name tells the kind:

- `b` (batch): a msgpack array of transactions. A transaction is `[incarnation, number, runs]`: the writer, its sequence
  number in this shard, and its changes. A run is `[table, kind, owner, keys, values]`: consecutive changes of one kind
  to rows of one owner in one table. It is stored in columns, which takes half the bytes and a third of the decoding
  time of one array per change. Puts and deletes are absolute, and a drop names the digest of the row it means. So an
  entry that is applied twice has the effect of once.
- `s` (seal): the first entry of a generation. Its value is the Stream ID on which the generation builds. A node whose
  tables are exactly there continues; any other must bootstrap.
- `c` (checkpoint): changes nothing, and its value is empty. Every node records the digests of its tables there, so
  digests of one checkpoint belong to the same log position and can be compared.

Number 0 registers an incarnation. A transaction with an empty incarnation has no number: it is a purge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import msgspec

from flockmq.rlog.errors import LogCorrupt

PUT: Final = 0
DELETE: Final = 1
PURGE: Final = 2
DROP: Final = 3
"""Compare and delete: delete the row only if its digest is still this value (8 bytes, big-endian)."""

Op = tuple[int, int, str, bytes, bytes]  # table id, kind, owner, key, value
Run = tuple[int, int, str, list[bytes], list[bytes]]  # table id, kind, owner, keys, values (of PUT and DROP)
Transaction = tuple[str, int, list[Run]]  # incarnation, number, runs

BATCH_FIELD: Final = b"b"
SEAL_FIELD: Final = b"s"
CHECKPOINT_FIELD: Final = b"c"


class StreamId(NamedTuple):
    """A log position (Raft: index with term), the same on every node. Sequences have no gaps within a generation."""

    generation: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.sequence}"

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """Parse Redis' form `generation-sequence`. Raises LogCorrupt."""
        try:
            generation, sequence = text.split("-" if isinstance(text, str) else b"-")  # type: ignore[arg-type]
            return cls(int(generation), int(sequence))
        except ValueError:
            raise LogCorrupt(f"{text!r} is not a Stream ID; expected generation-sequence") from None


START: Final = StreamId(0, 0)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Transaction])


def encode_transaction(incarnation: str, number: int, runs: Sequence[Run]) -> bytes:
    return _encoder.encode((incarnation, number, runs))


def encode_registration(incarnation: str) -> bytes:
    return _encoder.encode((incarnation, 0, ()))


def encode_purge(incarnation: str) -> bytes:
    """Remove the incarnation's sequence number and all rows that it owns, in all tables of the shard."""
    return _encoder.encode(("", 0, ((0, PURGE, incarnation, (), ()),)))


def encode_batch(transactions: Sequence[bytes]) -> bytes:
    """Build a batch as `functions.lua` does: the header of a msgpack array of 32-bit length, then the transactions."""
    return b"\xdd" + len(transactions).to_bytes(4, "big") + b"".join(transactions)


def decode_batch(data: bytes) -> list[Transaction]:
    """Raises LogCorrupt, with what msgpack found."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LogCorrupt(f"log entry of {len(data)} bytes: {error}") from None
