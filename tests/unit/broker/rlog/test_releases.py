"""Tables of this release beside those of a later one, which knows more tables, and more fields of a value."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.rlog.change import gather
from flockmq.rlog.entry import Op, StreamId, decode_batch, encode_batch, encode_purge, encode_transaction
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.schema import (
    ALARMS,
    BANS,
    CLUSTER,
    DELAYED,
    IMPORTS,
    MESSAGES,
    NODES,
    SHARES,
    SLOTS,
    USERS,
    VERSIONS,
    Alarm,
    Ban,
    DelayedMessage,
    ImportedFile,
    NodeInfo,
    RaisedVersion,
    RetainedMessage,
    SharedMembers,
    User,
)
from flockmq.rlog.table import RowTable, Table
from flockmq.rlog.table_spec import LATER, NUMBER_MAX, OWNED, TableSpec, join_owned, split_owned, without_later
from flockmq.rlog.tables import Shard, Tables

OWNERS: Final = ["a@1", "b@1", "c@1"]


class LaterNodeInfo(msgspec.Struct, frozen=True, array_like=True):
    name: str
    role: str
    host: str
    link_port: int
    mqtt_port: int
    version: str
    zone: str = ""
    rack: int = 0


LATER_NODES: Final[TableSpec[str, LaterNodeInfo]] = TableSpec(
    NODES.number, NODES.name, CLUSTER,
    split=lambda key, _: (key, b""), join=lambda owner, _: owner,
    encode=without_later(6), decode=msgspec.msgpack.Decoder(LaterNodeInfo).decode, fields=8,
)  # fmt: skip
PLACES: Final[TableSpec[bytes, bytes]] = TableSpec(
    100, "places", CLUSTER,
    split=lambda key, value: ((value or b"").decode(), key), join=lambda _, raw: raw, encode=bytes, decode=bytes,
)  # fmt: skip
"""place → owner: owned by that one, who isn't part of the key."""
OWNED_THINGS: Final[TableSpec[tuple[bytes, str], bytes]] = TableSpec(
    200, "things", CLUSTER, split=split_owned, join=join_owned, encode=bytes, decode=bytes
)


def later_shard() -> Shard:
    tables = [RowTable(LATER_NODES), RowTable(SLOTS), RowTable(ALARMS), RowTable(VERSIONS)]
    more = [RowTable(PLACES), RowTable(OWNED_THINGS)]
    return Shard(CLUSTER, cast(list[Table[object, object]], [*tables, *more]))


owners = st.sampled_from(OWNERS)
keys = st.sampled_from([b"1", b"2", b"3"])
ops: st.SearchStrategy[Op | str] = st.one_of(
    st.builds(
        lambda owner, zone, rack: LATER_NODES.put(owner, LaterNodeInfo(owner, "core", "h", 1, 2, "9", zone, rack)),
        owners, st.sampled_from(["", "east"]), st.sampled_from([0, 7]),
    ),
    st.builds(lambda key, owner: PLACES.put(key, owner.encode()), keys, owners),
    st.builds(PLACES.delete, keys),
    st.builds(lambda key, owner: OWNED_THINGS.put((key, owner), b"x" + key), keys, owners),
    st.builds(lambda key, owner: OWNED_THINGS.delete((key, owner)), keys, owners),
    owners,
)  # fmt: skip
"""An owner alone: it is purged."""


def apply(shard: Shard, op: Op | str) -> None:
    transaction = encode_purge(op) if isinstance(op, str) else encode_transaction("w@1", 1, gather([op]).runs)
    shard.apply(StreamId(1, shard.applied.sequence + 1), decode_batch(encode_batch([transaction])))
    shard.checkpoint(shard.applied)


def filled(fresh: Shard, source: Shard) -> Shard:
    """As a bootstrap does it."""
    for run in source.export():
        fresh.apply_runs([run])
    return fresh


def rows(shard: Shard) -> dict[int, set[tuple[object, object]]]:
    return {number: set(table.items()) for number, table in shard.tables.items() if len(table)}


@given(st.lists(ops, max_size=30))
def test_what_a_later_release_writes_is_carried_as_it_was_logged(log: list[Op | str]) -> None:
    ours, theirs = Tables().shards[CLUSTER], later_shard()
    for op in log:
        apply(ours, op)
        apply(theirs, op)
        assert ours.checkpoints == theirs.checkpoints
    assert ours.digests() == theirs.digests()
    assert filled(Tables().shards[CLUSTER], theirs).digests() == theirs.digests()
    again = filled(later_shard(), ours)
    assert again.digests() == theirs.digests()
    assert rows(again) == rows(theirs)
    assert filled(ours.fresh(), ours).digests() == ours.digests()


def test_a_value_with_an_appended_field_is_read_without_it() -> None:
    ours = Tables()
    apply(ours.shards[CLUSTER], LATER_NODES.put("a@1", LaterNodeInfo("a", "core", "h", 1, 2, "9", "east")))
    assert ours.nodes.get("a@1") == NodeInfo("a", "core", "h", 1, 2, "9")


def test_what_was_appended_is_left_out_where_it_has_its_default() -> None:
    info = ("a", "core", "h", 1, 2, "9")
    assert LATER_NODES.encode(LaterNodeInfo(*info)) == NODES.encode(NodeInfo(*info))
    assert len(msgspec.msgpack.decode(LATER_NODES.encode(LaterNodeInfo(*info, rack=7)))) == 8
    for later in (LaterNodeInfo(*info, zone="east"), LaterNodeInfo(*info, rack=7), LaterNodeInfo(*info)):
        assert LATER_NODES.decode(LATER_NODES.encode(later)) == later


@pytest.mark.parametrize("number", [MESSAGES.number, LATER - 1, NUMBER_MAX + 1])
def test_what_is_of_no_table_of_the_shard_nor_of_a_later_release_is_refused_by_name(number: int) -> None:
    with pytest.raises(LogCorrupt, match=f"shard cluster: no table has number {number}"):
        Tables().shards[CLUSTER].apply_runs([(number, 0, "", [b"1"], [b"1"])])


FIRST: Final[list[tuple[TableSpec[Any, Any], Any, list[object]]]] = [
    (NODES, NodeInfo("a", "core", "h", 1, 2, "9"), ["a", "core", "h", 1, 2, "9"]),
    (ALARMS, Alarm(1.0, "text"), [1.0, "text"]),
    (SHARES, SharedMembers(1, 2), [1, 2]),
    (MESSAGES, RetainedMessage(b"p", 1, b"", 5, 7), [b"p", 1, b"", 5, 7]),
    (DELAYED, DelayedMessage(b"t", b"p", 1, False, b"", 5), [b"t", b"p", 1, False, b"", 5, -1, b""]),
    (USERS, User("hash"), ["hash", "", False]),
    (BANS, Ban(0.0, "by", "reason", 1.0), [0.0, "by", "reason", 1.0]),
    (IMPORTS, ImportedFile(1.0, 7), [1.0, 7]),
]
"""Of each table that the first release has whose values are structs: one as nobody writes it who knows more, and its
fields."""


@pytest.mark.parametrize(("spec", "value", "fields"), FIRST, ids=[spec.name for spec, _, _ in FIRST])
def test_values_without_what_came_later_are_written_as_the_first_release_did(
    spec: TableSpec[Any, Any], value: Any, fields: list[object]
) -> None:
    assert spec.encode(value) == msgspec.msgpack.encode(fields)
    assert spec.decode(spec.encode(value)) == value


def test_all_tables_of_the_first_release_are_among_them() -> None:
    tables = [table for shard in Tables().shards.values() for table in shard.tables.values()]
    structs = {table.spec.number for table in tables if table.spec.number < LATER and table.spec.value_prefix}
    assert {spec.number for spec, _, _ in FIRST} == structs


def test_a_swap_keeps_listeners_and_leaves_carried_tables_alone() -> None:
    tables = Tables()
    heard: list[object] = []

    class Listener:
        def put(self, key: str, value: RaisedVersion, old: RaisedVersion | None) -> None:
            heard.append(value)

        def delete(self, key: str, old: RaisedVersion) -> None:
            raise AssertionError

        def fresh(self) -> Listener:
            return self

        def swap(self, fresh: Listener) -> None:
            heard.append("swap")

    tables.versions.listeners.append(Listener())
    apply(tables.shards[CLUSTER], PLACES.put(b"1", b"a@1"))
    tables.swap(filled(tables.shards[CLUSTER].fresh(), tables.shards[CLUSTER]))
    apply(tables.shards[CLUSTER], VERSIONS.put("cluster", RaisedVersion(2)))
    assert heard == ["swap", RaisedVersion(2)]
    assert len(tables.shards[CLUSTER].tables[PLACES.number]) == 1


def test_later_tables_have_their_owner_in_the_key_by_their_number() -> None:
    for shard in Tables().shards.values():
        for number, table in shard.tables.items():
            if number >= LATER:
                of_two = {table.spec.join(owner, b"cluster") for owner in OWNERS[:2]}
                assert len(of_two) == (2 if number >= OWNED else 1), table.spec.name
