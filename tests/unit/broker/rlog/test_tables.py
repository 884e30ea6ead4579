"""What a node's tables hold after entries of the log, purges and sweeps."""

from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.rlog.change import gather
from flockmq.rlog.entry import (
    Op,
    StreamId,
    decode_batch,
    encode_batch,
    encode_purge,
    encode_registration,
    encode_transaction,
)
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.shards import (
    CLUSTER,
    MESSAGES,
    NODES,
    RETAINED,
    ROUTE,
    ROUTES,
    SLOTS,
    USERS,
    NodeInfo,
    RetainedMessage,
    User,
)
from flockmq.rlog.tables import Shard, Tables

A, B, C = "a@1", "b@1", "c@1"


def apply(shard: Shard, *blobs: bytes) -> None:
    shard.apply(StreamId(1, shard.applied.sequence + 1), decode_batch(encode_batch(blobs)))


def write(shard: Shard, *ops: Op, writer: str = A, number: int = 1) -> None:
    apply(shard, encode_transaction(writer, number, gather(ops).runs))


def sweep(shard: Shard) -> None:
    while shard.sweep():
        pass


class Copy:
    """A listener that keeps a plain dict of its table."""

    def __init__(self) -> None:
        self.rows: dict[object, object] = {}

    def put(self, key: object, value: object, old: object) -> None:
        assert self.rows.get(key) == old
        self.rows[key] = value

    def delete(self, key: object, old: object) -> None:
        assert self.rows.pop(key) == old

    def fresh(self) -> Self:
        return type(self)()

    def swap(self, fresh: Self) -> None:
        self.rows = fresh.rows


def listen(tables: Tables, name: str) -> Copy:
    copy = Copy()
    tables.named(name).listeners.append(copy)
    return copy


def test_rows_are_read_back_as_they_were_written() -> None:
    tables = Tables()
    info = NodeInfo("a", "core", "10.0.0.1", 4370, 0, "0.1.0")
    message = RetainedMessage(b"21.5", 1, b"\x01\x00", 5)
    write(tables.shards[CLUSTER], NODES.put(A, info), SLOTS.put(1023, A))
    write(tables.shards[ROUTE], ROUTES.put((b"home/+", A), None))
    write(tables.shards[RETAINED], MESSAGES.put(b"home/t", message))
    write(tables.shards["auth"], USERS.put("jo", User("hash")))
    assert tables.nodes.get(A) == info
    assert tables.slots.get(1023) == A
    assert tables.routes.nodes(b"home/+") == {A}
    assert tables.messages.get(b"home/t") == message
    assert tables.users.get("jo") == User("hash")
    assert tables.shards[ROUTE].sequences == {A: 1}


def test_a_filter_that_the_same_nodes_want_shares_their_set() -> None:
    tables = Tables()
    for node in (A, B):
        write(tables.shards[ROUTE], ROUTES.put((b"x", node), None), ROUTES.put((b"y", node), None))
    assert tables.routes.nodes(b"x") is tables.routes.nodes(b"y")
    assert len(tables.routes) == 4
    assert tables.routes.node_sets == 1


def test_the_last_row_of_a_filter_takes_the_filter_with_it() -> None:
    tables = Tables()
    copy = listen(tables, "routes")
    write(tables.shards[ROUTE], ROUTES.put((b"x", A), None), ROUTES.put((b"x", B), None))
    write(tables.shards[ROUTE], ROUTES.delete((b"x", A)))
    assert tables.routes.nodes(b"x") == {B}
    write(tables.shards[ROUTE], ROUTES.delete((b"x", B)), ROUTES.delete((b"x", B)))
    assert tables.routes.nodes(b"x") == frozenset()
    assert (len(tables.routes), tables.routes.bytes, tables.routes.digest, copy.rows) == (0, 0, 0, {})


def test_purged_rows_are_gone_at_once_and_freed_later() -> None:
    tables = Tables()
    cluster, route = tables.shards[CLUSTER], tables.shards[ROUTE]
    slots, routes = listen(tables, "slots"), listen(tables, "routes")
    write(cluster, SLOTS.put(1, A), SLOTS.put(2, B))
    write(route, ROUTES.put((b"x", A), None), ROUTES.put((b"x", B), None), ROUTES.put((b"y", A), None))
    for shard in (cluster, route):
        apply(shard, encode_purge(A))
    assert (tables.slots.get(1), tables.slots.get(2), len(tables.slots)) == (None, B, 1)
    assert (tables.routes.nodes(b"x"), tables.routes.nodes(b"y"), len(tables.routes)) == ({B}, frozenset(), 1)
    assert route.sequences == {}
    assert len(routes.rows) == 3
    sweep(cluster)
    sweep(route)
    assert slots.rows == {2: B}
    assert routes.rows == {(b"x", B): None}


def test_a_slot_of_a_purged_node_can_be_given_away_before_it_is_swept() -> None:
    tables = Tables()
    cluster, copy = tables.shards[CLUSTER], listen(tables, "slots")
    write(cluster, SLOTS.put(1, A), SLOTS.put(2, A))
    apply(cluster, encode_purge(A), encode_transaction(B, 1, gather([SLOTS.put(1, B)]).runs))
    assert (tables.slots.get(1), tables.slots.get(2), len(tables.slots)) == (B, None, 1)
    sweep(cluster)
    assert copy.rows == {1: B}


def test_a_registration_counts_from_zero() -> None:
    tables = Tables()
    apply(tables.shards[ROUTE], encode_registration(A))
    assert tables.shards[ROUTE].sequences == {A: 0}


def test_a_run_of_an_unknown_table_is_refused_by_name() -> None:
    with pytest.raises(LogCorrupt, match="shard route: no table has number 4"):
        write(Tables().shards[ROUTE], MESSAGES.delete(b"x"))


def test_a_value_that_does_not_decode_is_refused_by_name() -> None:
    with pytest.raises(LogCorrupt, match="table messages"):
        write(Tables().shards[RETAINED], (MESSAGES.number, 0, "", b"topic", b"\xc1"))


@pytest.mark.parametrize("data", [b"", b"\xdd\x00\x00\x00\x02\x90", b"\x93\x01\x02\x03", b"\xff" * 40])
def test_an_entry_that_is_not_one_is_refused(data: bytes) -> None:
    with pytest.raises(LogCorrupt, match=f"log entry of {len(data)} bytes"):
        decode_batch(data)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from([A, B, C])), max_size=40))
def test_the_digest_depends_on_the_rows_alone(changes: list[tuple[bool, int, str]]) -> None:
    """However the rows came about: by the changes one by one, or by one put each."""
    by_changes, by_rows = Tables(), Tables()
    rows: set[tuple[bytes, str]] = set()
    for put, number, node in changes:
        key = (b"f%d" % number, node)
        write(by_changes.shards[ROUTE], ROUTES.put(key, None) if put else ROUTES.delete(key))
        rows = rows | {key} if put else rows - {key}
    write(by_rows.shards[ROUTE], *(ROUTES.put(key, None) for key in sorted(rows, reverse=True)))
    assert by_changes.routes.digest == by_rows.routes.digest
    assert len(by_changes.routes) == len(by_rows.routes) == len(rows)
    assert {key for key, _ in by_changes.routes.items()} == rows
    assert by_changes.routes.node_sets == len({by_changes.routes.nodes(key[0]) for key in rows})


def test_a_drop_deletes_the_row_that_was_seen_and_no_later_one() -> None:
    tables = Tables()
    shard, table = tables.shards[RETAINED], tables.messages
    message = RetainedMessage(b"old", 1, b"", 5)
    write(shard, MESSAGES.put(b"t", message), MESSAGES.put(b"u", message))
    drops = [table.drop(b"t"), table.drop(b"u")]
    assert table.drop(b"unknown") is None
    write(shard, MESSAGES.put(b"t", RetainedMessage(b"new", 1, b"", 5)), number=2)
    write(shard, *[drop for drop in drops if drop is not None], number=3)
    assert (table.get(b"u"), len(table)) == (None, 1)
    row = table.get(b"t")
    assert row is not None
    assert row.payload == b"new"
