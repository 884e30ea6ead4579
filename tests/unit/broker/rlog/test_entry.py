"""What stands in the log: runs, transactions, Stream IDs."""

import pytest

from flockmq.rlog.change import gather
from flockmq.rlog.entry import (
    PURGE,
    PUT,
    Op,
    StreamId,
    decode_batch,
    encode_batch,
    encode_purge,
    encode_registration,
    encode_transaction,
)
from flockmq.rlog.errors import LogCorrupt


def test_a_batch_holds_transactions_of_several_nodes() -> None:
    op: Op = (3, PUT, "a@1", b"f", b"")
    batch = encode_batch(
        [encode_registration("a@1"), encode_transaction("a@1", 1, gather([op]).runs), encode_purge("b@1")]
    )
    assert decode_batch(batch) == [
        ("a@1", 0, []),
        ("a@1", 1, [(3, PUT, "a@1", [b"f"], [b""])]),
        ("", 0, [(0, PURGE, "b@1", [], [])]),
    ]


def test_stream_ids_are_ordered_by_generation_first() -> None:
    assert StreamId(1, 900) < StreamId(2, 0) < StreamId(2, 1)
    assert StreamId.parse(b"2-10") == StreamId.parse("2-10") == StreamId(2, 10)
    assert str(StreamId(2, 10)) == "2-10"


@pytest.mark.parametrize("text", ["", "1", "1-", "a-b", "1-2-3", b"1"])
def test_what_is_no_stream_id_is_refused(text: str | bytes) -> None:
    with pytest.raises(LogCorrupt, match="expected generation-sequence"):
        StreamId.parse(text)
