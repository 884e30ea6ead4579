"""Decoding: what fits becomes events; what doesn't is named, and costs nothing else."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.membership.event_batches import COLUMNS, EventBuffer
from pyspark_flockmq.events import STREAMS, Batch, Malformed, Stream, decode_batch

CONNECTIONS, LAG = STREAMS["connections"], STREAMS["lag"]
GOOD = [1_000, "node-1", "connected", "client", 0, 5]
"""An event of the first release."""


def entry(batch: object) -> dict[bytes, bytes]:
    return {b"events": msgspec.msgpack.encode(batch)}


def rows(stream: Stream, batch: Batch) -> list[dict[str, object]]:
    """The events, without what is null."""
    names = [name for name, _ in stream.columns]
    columns = [
        array.cast("int64").to_pylist() if name == "at" else array.to_pylist()
        for name, array in zip(names, batch.arrays, strict=True)
    ]
    return [
        {name: value for name, value in zip(names, values, strict=True) if value is not None}
        for values in zip(*columns, strict=True)
    ]


def batch_of(columns: Mapping[str, object], **header: object) -> dict[str, object]:
    return {"v": 2, "node": "n", "incarnation": "n@1", "number": 3, "first": 7, "shed": 2, "columns": columns} | header


def test_what_a_node_packs_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind and column that nodes have is known here."""
    assert set(COLUMNS) == set(STREAMS)
    buffer = EventBuffer("n", "n@1")
    for kind, columns in COLUMNS.items():
        assert {name for name, _ in STREAMS[kind].columns} >= set(columns)
        buffer.add(kind, [tuple(1 if name == "at" else None for name in columns)] * 2)
    for kind, payload in buffer.take():
        batch = decode_batch(STREAMS[kind], {b"events": payload})
        common = {"at": 1_000, "node": "n", "incarnation": "n@1", "shed": 0}
        assert rows(STREAMS[kind], batch) == [common | {"number": 0}, common | {"number": 1}]
        assert not batch.malformed


def test_columns_are_found_by_their_names() -> None:
    columns = {"lag_ms": [5, None], "at": [1, 2], "shard": ["route", "auth"]}
    batch = decode_batch(LAG, entry(batch_of(columns)))
    common = {"node": "n", "incarnation": "n@1", "shed": 2}
    assert rows(LAG, batch) == [
        common | {"at": 1_000, "number": 7, "shard": "route", "lag_ms": 5},
        common | {"at": 2_000, "number": 8, "shard": "auth"},
    ]


def test_what_a_newer_node_adds_is_ignored() -> None:
    columns = {"at": [1], "shard": ["route"], "mood": [{"good": 1}]}
    batch = decode_batch(LAG, entry(batch_of(columns, v=3, weather=["fine"])))
    assert [row["shard"] for row in rows(LAG, batch)] == ["route"]
    assert not batch.malformed


def test_a_header_that_says_nonsense_is_as_one_that_says_nothing() -> None:
    batch = decode_batch(LAG, entry(batch_of({"at": [1]}, node=7, incarnation=None, first=-1, shed="x")))
    assert rows(LAG, batch) == [{"at": 1_000}]


def test_a_batch_of_the_first_release() -> None:
    batch = decode_batch(CONNECTIONS, entry([GOOD, [2_000, "n", "disconnected", "é", 0x8E, 4]]))
    assert batch.positions == [0, 1]
    assert rows(CONNECTIONS, batch) == [
        {
            "at": 1_000_000,
            "node": "node-1",
            "kind": "connected",
            "client_id": "client",
            "reason_code": 0,
            "protocol_version": 5,
        },
        {
            "at": 2_000_000,
            "node": "n",
            "kind": "disconnected",
            "client_id": "é",
            "reason_code": 0x8E,
            "protocol_version": 4,
        },
    ]
    lag = decode_batch(LAG, entry([[5, "n", "route", 2**40, 17]]))
    assert rows(LAG, lag) == [{"at": 5_000, "node": "n", "shard": "route", "lag_entries": 2**40, "lag_ms": 17}]


def test_an_event_of_the_first_release_may_be_longer_or_shorter() -> None:
    batch = decode_batch(LAG, entry([[5, "n", "route", 1, 2, "more"], [6, "n"]]))
    assert rows(LAG, batch)[1] == {"at": 6_000, "node": "n"}
    assert not batch.malformed


@pytest.mark.parametrize("batch", [[], batch_of({"at": [], "shard": []})])
def test_an_empty_batch_is_fine(batch: object) -> None:
    decoded = decode_batch(LAG, entry(batch))
    assert (list(decoded.positions), list(decoded.malformed)) == ([], [])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "the entry has no field 'events'"),
        ({b"events": b""}, "the batch isn't msgpack"),
        ({b"events": msgspec.msgpack.encode([GOOD])[:-3]}, "the batch isn't msgpack"),
        ({b"events": msgspec.msgpack.encode([GOOD]) + b"\x00"}, "the batch isn't msgpack"),
        ({b"events": b"\xc1"}, "the batch isn't msgpack"),
        ({b"events": b"\x91" * 5_000}, "the batch isn't msgpack"),
        (entry(7), "the batch has no columns"),
        (entry({"v": 2}), "the batch has no columns"),
        (entry(batch_of({"at": [1, 2], "shard": ["route"]})), "the batch's columns aren't lists of one length"),
        (entry(batch_of({"at": 1})), "the batch's columns aren't lists of one length"),
    ],
)
def test_a_malformed_batch_is_one_malformed(fields: dict[bytes, bytes], reason: str) -> None:
    batch = decode_batch(CONNECTIONS, fields)
    assert not batch.positions
    ((position, said),) = batch.malformed
    assert position is None
    assert said.startswith(reason)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (None, "the event is a NoneType, not an array"),
        ([], "it has no time"),
        (["now", *GOOD[1:]], "at isn't in 0..253402300799999"),
        ([True, *GOOD[1:]], "at isn't in 0..253402300799999"),
        ([-1, *GOOD[1:]], "at isn't in 0..253402300799999"),
        ([2**63, *GOOD[1:]], "at isn't in 0..253402300799999"),
        ([1, 2, *GOOD[2:]], "node isn't str"),
        ([1, "n", "connected", b"c", 0, 5], "client_id isn't str"),
        ([1, "n", "connected", "c", 256, 5], "reason_code isn't in 0..255"),
        ([1, "n", "connected", "c", 0, 5.5], "protocol_version isn't in 0..255"),
        ([1, "n", "connected", "c", 0, 5.0], "protocol_version isn't in 0..255"),
    ],
)
def test_a_malformed_event_leaves_its_batch_alone(event: object, reason: str) -> None:
    for events in ([GOOD, event, GOOD], [event]):
        batch = decode_batch(CONNECTIONS, entry(events))
        assert list(batch.malformed) == [Malformed(len(events) // 2, reason)]
        assert [row["at"] for row in rows(CONNECTIONS, batch)] == [1_000_000] * (len(events) - 1)
        assert list(batch.positions) == ([0, 2] if len(events) == 3 else [])


def test_a_malformed_value_of_a_column_costs_its_event_only() -> None:
    batch = decode_batch(LAG, entry(batch_of({"at": [1, 2, 3], "lag_ms": [0, -1, 2]})))
    assert list(batch.malformed) == [Malformed(1, "lag_ms isn't in 0..9223372036854775807")]
    assert [(row["number"], row["lag_ms"]) for row in rows(LAG, batch)] == [(7, 0), (9, 2)]


values = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(), st.binary())


@given(st.binary())
def test_no_bytes_are_fatal(payload: bytes) -> None:
    for stream in STREAMS.values():
        decode_batch(stream, {b"events": payload})


@given(st.lists(st.lists(values, max_size=7)), st.data())
def test_no_values_are_fatal(events: list[list[object]], data: st.DataObject) -> None:
    """Each event is either read or named."""
    for stream in STREAMS.values():
        batch = decode_batch(stream, entry(events))
        assert sorted([*batch.positions, *(one.position or 0 for one in batch.malformed)]) == list(range(len(events)))
        names = [name for name, _ in stream.columns]
        columns = {name: data.draw(st.lists(values, min_size=3, max_size=3)) for name in names}
        batch = decode_batch(stream, entry(batch_of(columns)))
        assert len(batch.positions) + len(batch.malformed) == 3
