"""Decoding: what fits becomes events; what doesn't is named, and costs nothing else."""

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_flockmq.events import STREAMS, Event, Malformed, decode_batch

CONNECTIONS, LAG = STREAMS["connections"], STREAMS["lag"]
GOOD = [1_000, "node-1", "connected", "client", 0, 5]
DECODED = (1_000_000, "node-1", "connected", "client", 0, 5)


def entry(batch: object) -> dict[bytes, bytes]:
    return {b"events": msgpack.packb(batch)}


def test_a_batch_of_connection_events() -> None:
    events, malformed = decode_batch(CONNECTIONS, entry([GOOD, [2_000, "n", "disconnected", "é", 0x8E, 4]]))
    assert events == [Event(0, DECODED), Event(1, (2_000_000, "n", "disconnected", "é", 0x8E, 4))]
    assert malformed == []


def test_a_batch_of_lag_events() -> None:
    assert decode_batch(LAG, entry([[5, "n", "route", 2**40, 17]])) == (
        [Event(0, (5_000, "n", "route", 2**40, 17))],
        [],
    )


def test_text_may_be_packed_as_bytes() -> None:
    assert decode_batch(CONNECTIONS, entry([[1_000, b"node-1", b"connected", b"client", 0, 5]]))[0] == [
        Event(0, DECODED)
    ]


def test_an_empty_batch_is_fine() -> None:
    assert decode_batch(LAG, entry([])) == ([], [])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "the entry has no field 'events'"),
        ({b"events": b""}, "the batch isn't msgpack (ValueError)"),
        ({b"events": msgpack.packb([GOOD])[:-3]}, "the batch isn't msgpack (ValueError)"),
        ({b"events": msgpack.packb([GOOD]) + b"\x00"}, "the batch isn't msgpack (ExtraData)"),
        ({b"events": b"\xc1"}, "the batch isn't msgpack (FormatError)"),
        ({b"events": b"\x91" * 5_000}, "the batch isn't msgpack (StackError)"),
        (entry(7), "the batch is a int, not an array"),
    ],
)
def test_a_malformed_batch_is_one_malformed(fields: dict[bytes, bytes], reason: str) -> None:
    assert decode_batch(CONNECTIONS, fields) == ([], [Malformed(None, reason)])


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (None, "the event is a NoneType, not an array"),
        (GOOD[:-1], "the event has 5 values, not 6"),
        ([*GOOD, 1], "the event has 7 values, not 6"),
        (["now", *GOOD[1:]], "at isn't an integer"),
        ([True, *GOOD[1:]], "at isn't an integer"),
        ([-1, *GOOD[1:]], "at isn't in 0..253402300799999"),
        ([2**63, *GOOD[1:]], "at isn't in 0..253402300799999"),
        ([1, 2, *GOOD[2:]], "node isn't text"),
        ([1, "n" * 254, *GOOD[2:]], "node is longer than 253 bytes"),
        ([1, "n", "conected", *GOOD[3:]], "kind is neither 'connected' nor 'disconnected'"),
        ([1, "n", "connected", b"\xff", 0, 5], "client_id isn't UTF-8"),
        ([1, "n", "connected", "c", 256, 5], "reason_code isn't in 0..255"),
        ([1, "n", "connected", "c", 0, 5.0], "protocol_version isn't an integer"),
    ],
)
def test_a_malformed_event_leaves_its_batch_alone(event: object, reason: str) -> None:
    events, malformed = decode_batch(CONNECTIONS, entry([GOOD, event, GOOD]))
    assert events == [Event(0, DECODED), Event(2, DECODED)]
    assert malformed == [Malformed(1, reason)]


@given(st.binary())
def test_no_bytes_are_fatal(payload: bytes) -> None:
    for stream in STREAMS.values():
        decode_batch(stream, {b"events": payload})
