"""Packets that have come in part: who loses its connection when they are too many."""

from __future__ import annotations

from flockmq.bounds import PARTIAL_COUNTED_BYTES
from flockmq.routing.back_pressure import PausablePublisher, PublisherPauses
from flockmq.routing.partial_packets import PartialPackets
from flockmq.routing.sink import SinkHost
from flockmq.telemetry.counters import Counters

PART: int = PARTIAL_COUNTED_BYTES


def clients(count: int) -> list[PausablePublisher]:
    pauses = PublisherPauses(SinkHost(Counters()))
    return [PausablePublisher(pauses, 5) for _ in range(count)]


def test_the_user_with_most_loses_the_connections_whose_packets_began_first() -> None:
    partials = PartialPackets(100 * PART)
    many, (other, late) = clients(99), clients(2)
    partials.has_come(b"other", other, PART)
    for client in many:
        partials.has_come(b"many", client, PART)
    assert partials.excess() == []
    partials.has_come(b"late", late, PART)
    assert partials.excess() == many[:3], "a 64th is free then"
    assert partials.bytes == 98 * PART


def test_what_comes_of_a_packet_counts_once() -> None:
    partials = PartialPackets()
    (client,) = clients(1)
    for size_bytes in (PART - 1, PART, 3 * PART):
        partials.has_come(b"u", client, size_bytes)
    assert partials.bytes == 3 * PART
    partials.ended(b"u", client)
    partials.ended(b"u", client)
    assert partials.bytes == 0


def test_a_packet_that_goes_on_does_not_become_a_later_one() -> None:
    partials = PartialPackets(3 * PART)
    first, second = clients(2)
    partials.has_come(b"u", first, PART)
    partials.has_come(b"u", second, PART)
    partials.has_come(b"u", first, 3 * PART)
    assert partials.excess() == [first]


def test_a_small_part_is_not_counted() -> None:
    partials = PartialPackets(0)
    (client,) = clients(1)
    partials.has_come(b"u", client, PART - 1)
    assert (partials.bytes, partials.excess()) == (0, [])
