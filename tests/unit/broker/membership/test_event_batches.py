"""Batches of events: whoever reads them sees what is missing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flockmq import bounds
from flockmq.membership.event_batches import COLUMNS, Event, EventBuffer, text_of


def refusal(number: int) -> Event:
    return number, f"client-{number}", 0x87, 5, "tcp:default", "192.0.2.1"


def batches(buffer: EventBuffer) -> list[dict[str, Any]]:
    return [msgspec.msgpack.decode(batch) for kind, batch in buffer.take() if kind == "refusals"]


@pytest.fixture
def buffer() -> EventBuffer:
    return EventBuffer("replicant-1", "replicant-1@0123")


def test_a_batch_names_its_node_and_its_columns(buffer: EventBuffer) -> None:
    buffer.add("refusals", [refusal(1), refusal(2)])
    assert batches(buffer) == [
        {
            "v": 2,
            "node": "replicant-1",
            "incarnation": "replicant-1@0123",
            "number": 0,
            "first": 0,
            "shed": 0,
            "columns": {
                "at": [1, 2],
                "client_id": ["client-1", "client-2"],
                "reason_code": [0x87, 0x87],
                "protocol_version": [5, 5],
                "listener": ["tcp:default", "tcp:default"],
                "address": ["192.0.2.1", "192.0.2.1"],
            },
        }
    ]
    assert buffer.take() == []


def test_a_lost_batch_shows_in_the_next_ones_number(buffer: EventBuffer) -> None:
    for lost in (False, True, False):
        buffer.add("refusals", [refusal(n) for n in range(3)])
        taken = batches(buffer)
        if not lost:
            kept = taken
    assert [(batch["number"], batch["first"]) for batch in kept] == [(2, 6)]


def test_events_beyond_the_buffer_are_numbered_all_the_same(
    buffer: EventBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "EVENTS_MAX", 5)
    monkeypatch.setattr(bounds, "EVENTS_ENTRY_MAX", 2)
    buffer.add("refusals", [refusal(n) for n in range(7)])
    buffer.add("refusals", [refusal(7)])
    seen = [(b["number"], b["first"], len(b["columns"]["at"]), b["shed"]) for b in batches(buffer)]
    buffer.add("refusals", [refusal(8)])
    seen += [(b["number"], b["first"], len(b["columns"]["at"]), b["shed"]) for b in batches(buffer)]
    assert seen == [(0, 0, 2, 0), (1, 2, 2, 0), (2, 4, 1, 0), (3, 8, 1, 3)]
    assert buffer.dropped == 3


def test_kinds_have_room_of_their_own(buffer: EventBuffer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who tries passwords takes no room from the others' connects."""
    monkeypatch.setattr(bounds, "EVENTS_MAX", 5)
    buffer.add("refusals", [refusal(n) for n in range(7)])
    buffer.add("lag", [(0,) * len(COLUMNS["lag"])] * 5)
    assert buffer.dropped == 2


def test_a_long_client_id_is_cut_and_still_told_from_others() -> None:
    first, second = b"x" * 65_000 + b"1", b"x" * 65_000 + b"2"
    assert len(text_of(first).encode()) == bounds.EVENTS_TEXT_MAX_BYTES
    assert text_of(first) != text_of(second)
    assert text_of(b"x" * bounds.EVENTS_TEXT_MAX_BYTES) == "x" * bounds.EVENTS_TEXT_MAX_BYTES
    assert text_of("é".encode() * 200).isprintable()
