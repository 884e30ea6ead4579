"""What stands in the log: runs, transactions, Stream IDs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.rlog.entry import (
    DELETE,
    PURGE,
    PUT,
    Op,
    StreamId,
    decode_batch,
    encode_batch,
    encode_purge,
    encode_registration,
    encode_transaction,
    runs_of,
)
from flockmq.rlog.errors import LogCorrupt

puts = st.tuples(st.integers(1, 3), st.just(PUT), st.sampled_from("ab"), st.binary(max_size=3), st.binary(max_size=3))
deletes = st.tuples(st.integers(1, 3), st.just(DELETE), st.sampled_from("ab"), st.binary(max_size=3), st.just(b""))


@given(st.lists(st.one_of(puts, deletes)))
def test_runs_hold_every_op_in_its_order(ops: list[Op]) -> None:
    unrolled: list[Op] = []
    for table, kind, owner, keys, values in runs_of(ops):
        unrolled += [
            (table, kind, owner, key, value) for key, value in zip(keys, values or [b""] * len(keys), strict=True)
        ]
    assert unrolled == ops


def test_consecutive_changes_of_one_kind_are_one_run() -> None:
    ops: list[Op] = [(3, PUT, "a", b"%d" % n, b"") for n in range(9)]
    assert len(runs_of(ops)) == 1
    assert len(runs_of([*ops, (3, DELETE, "a", b"1", b""), *ops])) == 3


def test_a_batch_holds_transactions_of_several_nodes() -> None:
    op: Op = (3, PUT, "a@1", b"f", b"")
    batch = encode_batch([encode_registration("a@1"), encode_transaction("a@1", 1, [op]), encode_purge("b@1")])
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
