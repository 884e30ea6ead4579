"""Encodes acknowledgements between a session proxy and the owner: pairs of a kind (1 byte) and a packet id (2 bytes).

The owner sends settled pairs in the same stream as packets, each as a packet of a type that MQTT doesn't have. So a
pair never arrives before a packet that was sent ahead of it; that packet may be a repeat, which the proxy recognizes
only until its packet id is settled.

 reported by the proxy            settled by the owner, after the commit
 PUBACK, PUBREC_REFUSED, PUBCOMP  the same: the proxy forgets the packet id
 PUBREC                           nothing: PUBREL is sent, as a packet
 PUBREL                           the same, or PUBREL_UNKNOWN: the proxy sends PUBCOMP
 DROPPED                          the same: PUBREC refused the client's message, so no PUBREL follows
"""

from __future__ import annotations

from typing import Final

SETTLED: Final = 0x00
"""The first byte of a settled pair, which isn't for the client."""
AGAIN: Final = b"\0\0"
"""Marker: everything incomplete is sent again after it. The proxy reports all unsettled acknowledgements again, because
something may have been lost.
"""

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
    """A pair as it is sent in the stream of packets."""
    return b"\0\3" + pair(kind, packet_id)
