"""What a session proxy and its owner tell one another about packet ids: pairs of a kind (1 byte) and a packet id (2).

What is settled comes to the proxy in one stream with the packets, each pair as a packet of a type that MQTT doesn't
have: so it can't overtake a packet that the proxy knows as a repeat by what it settles.

reported by the proxy            settled by the owner, when it is committed
PUBACK, PUBREC_REFUSED, PUBCOMP  the same: the proxy forgets the packet id
PUBREC                           nothing: PUBREL comes, as a packet
PUBREL                           the same, or PUBREL_UNKNOWN: the proxy sends PUBCOMP
DROPPED                          the same: PUBREC refused the client's message, so that no PUBREL comes
"""

from __future__ import annotations

from typing import Final

SETTLED: Final = 0x00
"""The first byte of what is not for the client."""
AGAIN: Final = b"\0\0"
"""All that isn't complete comes again behind it: something may have been lost, so report all that isn't settled."""

PUBACK: Final = 0x04
PUBREC: Final = 0x05
PUBREL: Final = 0x06
PUBCOMP: Final = 0x07
PUBREC_REFUSED: Final = 0x85
PUBREL_UNKNOWN: Final = 0x86
DROPPED: Final = 0x96

PAIR_BYTES: Final = 3


def pair(kind: int, packet_id: int) -> bytes:
    return bytes((kind, packet_id >> 8, packet_id & 0xFF))


def settled(kind: int, packet_id: int) -> bytes:
    """As it stands in the stream."""
    return b"\0\3" + pair(kind, packet_id)
