"""The slot of a client id: the same everywhere, and even for the names that fleets really have."""

from __future__ import annotations

from collections import Counter

import pytest

from flockmq.bounds import SLOTS
from flockmq.routing.slots import slot_of

FLEETS = [
    [f"{name}{number:{width}}".encode() for number in range(8)]
    for name in ("backend-", "worker/", "consumer_", "bench-subscriber-", "ingest-eu-west-", "svc", "flink.", "a")
    for width in ("", "04")
]


@pytest.mark.parametrize("cores", [2, 3])
def test_few_clients_that_are_numbered_have_different_owners(cores: int) -> None:
    """Cores have ranges of slots. By chance the fullest of two has 5.1 of 8 clients, of three 4.3."""
    fullest = [max(Counter(slot_of(client_id) * cores // SLOTS for client_id in fleet).values()) for fleet in FLEETS]
    assert sum(fullest) / len(fullest) <= {2: 5.5, 3: 4.6}[cores]


def test_a_large_fleet_fills_all_slots_alike() -> None:
    counts = Counter(slot_of(b"device-%06d" % number) for number in range(100_000))
    assert set(counts) == set(range(SLOTS))
    assert sum((count - 100_000 / SLOTS) ** 2 for count in counts.values()) / 100_000 < 1.2, "as chance would have it"


def test_a_slot_never_changes() -> None:
    """It says where in Redis a session is."""
    assert [slot_of(client_id) for client_id in (b"", b"a", b"device-000001", bytes(65535))] == [0, 489, 150, 544]
