"""What stands in the log, byte for byte.

A shard's stream holds three kinds of entries, told apart by their one field:

- `b` (batch): a msgpack array of transactions. A transaction is `[incarnation, number, runs]`: the writer, its number
  in this shard, and what it changes. A run is `[table, kind, owner, keys, values]`: consecutive changes of one kind to
  rows of one owner in one table, laid out in columns because that is half the bytes and a third of the decoding of
  one array a change. Puts and deletes are absolute, and a drop names the digest of the row it means, so applying an
  entry twice changes nothing.
- `s` (seal): the first entry of a generation; its value is the Stream ID that the generation builds on. A node that
  stands exactly there goes on; any other must bootstrap.
- `c` (checkpoint): changes nothing; its value is empty. Every node notes the digests of its tables there, so what
  nodes say of one checkpoint is said of the same place of the log and can be compared.

Number 0 registers an incarnation. A transaction with an empty incarnation has no number: a purge.
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
"""Delete a row if it still is the one that was seen: the value is its digest, 8 bytes, big end first."""

Op = tuple[int, int, str, bytes, bytes]  # table id, kind, owner, key, value
Run = tuple[int, int, str, list[bytes], list[bytes]]  # table id, kind, owner, keys, values (of PUT and DROP)
Transaction = tuple[str, int, list[Run]]  # incarnation, number, runs

BATCH_FIELD: Final = b"b"
SEAL_FIELD: Final = b"s"
CHECKPOINT_FIELD: Final = b"c"


class StreamId(NamedTuple):
    """A place in a shard's log, alike on every node. Within a generation sequences have no gaps."""

    generation: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.sequence}"

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """From Redis' form `generation-sequence`; raises LogCorrupt for anything else."""
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
    """All rows that this incarnation owns, in all tables of the shard, and its number."""
    return _encoder.encode(("", 0, ((0, PURGE, incarnation, (), ()),)))


def encode_batch(transactions: Sequence[bytes]) -> bytes:
    """As `functions.lua` builds it: the header of a msgpack array of 32-bit length, then the transactions."""
    return b"\xdd" + len(transactions).to_bytes(4, "big") + b"".join(transactions)


def decode_batch(data: bytes) -> list[Transaction]:
    """Raises LogCorrupt, with what msgpack found."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LogCorrupt(f"log entry of {len(data)} bytes: {error}") from None
