"""What a front and its session's home tell one another about packet ids: pairs of a kind (1 byte) and a packet id (2).

reported by the front            settled by the home, when it is durable
PUBACK, PUBREC_REFUSED, PUBCOMP  the same: the front forgets the packet id
PUBREC                           nothing: PUBREL comes, as a packet
PUBREL                           the same, or PUBREL_UNKNOWN: the front sends PUBCOMP
DROPPED                          the same: PUBREC refused the client's message, so that no PUBREL comes
"""

from __future__ import annotations

from typing import Final

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
