"""What a node's tables hold after entries of the log, purges and sweeps."""

from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq import bounds
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
from flockmq.rlog.retained_order import author_of
from flockmq.rlog.schema import (
    CLUSTER,
    MESSAGES,
    NODES,
    RETAINED,
    ROUTE,
    ROUTES,
    SLOTS,
    USERS,
    VERSIONS,
    NodeInfo,
    RaisedVersion,
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


def test_how_far_the_latest_that_were_purged_had_come_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOG_PURGED_MAX_INCARNATIONS", 2)
    shard = Tables().shards[ROUTE]
    for number, owner in enumerate((A, B, C), start=3):
        write(shard, ROUTES.put((b"f", owner), None), writer=owner, number=number)
        apply(shard, encode_purge(owner))
        apply(shard, encode_purge("stranger@1"))
    assert (shard.sequences, shard.ended) == ({}, {B: 4, C: 5})


def test_a_table_that_an_older_release_does_not_have_counts_once_it_has_rows() -> None:
    """Until then digests are those that it compares with its own."""
    shard = Tables().shards[CLUSTER]
    assert list(shard.digests()) == ["nodes", "slots", "alarms"]
    shard.checkpoint(StreamId(1, 1))
    apply(shard, encode_transaction(A, 1, gather([VERSIONS.put("cluster", RaisedVersion(2))]).runs))
    assert list(shard.digests()) == ["nodes", "slots", "alarms", "64"]
    shard.checkpoint(StreamId(1, 3))
    before, after = shard.checkpoints.values()
    assert after == (*before, 64, shard.tables[64].digest) == (0, 0, 0, 64, shard.tables[64].digest)


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
    sets = [by_changes.routes.nodes(filter) for filter, _ in rows]
    assert len(set(map(id, sets))) == len(set(sets)), "filters that the same nodes want share a set"


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


def said(client: bytes, token: int, payload: bytes = b"", *, is_will: bool = False) -> Op:
    author = author_of(client, token, is_will=is_will)
    return MESSAGES.put(b"t", RetainedMessage(payload or b"%d" % token, 1, b"", 5, 0, author))


def test_what_a_client_left_behind_does_not_replace_what_it_wrote_since() -> None:
    tables = Tables()
    copy = listen(tables, "messages")
    write(tables.shards[RETAINED], said(b"c", 2))
    digest = tables.messages.digest
    write(tables.shards[RETAINED], said(b"c", 1), said(b"c", 1, is_will=True), number=2)
    message = tables.messages.get(b"t")
    assert message is not None
    assert message.payload == b"2"
    assert (tables.messages.digest, len(tables.messages), copy.rows) == (digest, 1, {b"t": message})


@pytest.mark.parametrize(
    "later",
    [said(b"c", 2, b"newer"), said(b"c", 2, b"newer", is_will=True), said(b"c", 3, b"newer"), said(b"d", 1, b"newer")],
    ids=["the same connection", "its will", "a later connection", "another client"],
)
def test_what_was_written_later_replaces_it(later: Op) -> None:
    tables = Tables()
    write(tables.shards[RETAINED], said(b"c", 2), later)
    message = tables.messages.get(b"t")
    assert message is not None
    assert message.payload == b"newer"


@given(
    st.lists(st.tuples(st.sampled_from([b"c", b"d"]), st.integers(1, 4), st.booleans()), max_size=12),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_who_is_given_rows_amid_the_log_and_reads_on_from_before_has_the_same(
    turns: list[tuple[bytes, int, bool]], start: int, given_at: int
) -> None:
    """As a bootstrap does: a row is of a later place than the one that the log is replayed from."""
    ops = [said(client, token, b"%d" % place, is_will=will) for place, (client, token, will) in enumerate(turns)]
    start = min(start, len(ops))
    given_at = min(max(start, given_at), len(ops))
    whole, amid, fresh = Tables().shards[RETAINED], Tables().shards[RETAINED], Tables().shards[RETAINED]
    for op in ops:
        write(whole, op)
    for op in ops[:given_at]:
        write(amid, op)
    fresh.apply_runs(list(amid.export()))
    for op in ops[start:]:
        write(fresh, op)
    assert fresh.digests() == whole.digests()
