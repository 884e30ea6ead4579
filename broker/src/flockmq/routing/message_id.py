"""The 128-bit id of a message: who numbers it (a source, 8 bytes) and its number there (u64), which only grows.

A source is a node, from its start to its end, or a session: its QoS 2 messages keep their numbers when another node
sends them again. What its client publishes on a new connection has another source, because it may come before what is
still on its way from the former connection.

Messages of one source are sent in the order of their numbers, and come to slots in that order
(`delivery.deduplicator`). A node may get them in another order: one that another node sends again may come before
earlier ones that are still on their way from the former node. Pure.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import ORIGINS_MAX, ORIGINS_WINDOW

ORIGIN: Final = 0x40
"""Added to the MQTT version of what is forwarded: each packet comes behind its origin."""
SOURCE_BYTES: Final = 8
ORIGIN_BYTES: Final = 16
PROCESS_DIGITS: Final = 16
_WINDOW_BITS: Final = (1 << ORIGINS_WINDOW) - 1


def origin_of(source: bytes, number: int) -> bytes:
    return source + number.to_bytes(8, "big")


def source_of(origin: bytes) -> bytes:
    return origin[:8]


def number_of(origin: bytes) -> int:
    return int.from_bytes(origin[8:16], "big")


def process_of(incarnation: str) -> str:
    """What all incarnations of one process have in common: `name@`, and 16 hex digits of 20."""
    name, _, digits = incarnation.rpartition("@")
    return f"{name}@{digits[:PROCESS_DIGITS]}"


def node_source(incarnation: str) -> bytes:
    """The source of a node, from its start to its end, whatever incarnation it is; its first bit is set. A node that
    was purged and comes back repeats what wasn't accepted, and goes on with its numbers.
    """
    digest = blake2b(process_of(incarnation).encode(), digest_size=SOURCE_BYTES).digest()
    return bytes((digest[0] | 0x80,)) + digest[1:]


def session_source(random: bytes) -> bytes:
    """The source of a session, from SOURCE_BYTES random bytes; its first bit is not set."""
    return bytes((random[0] & 0x7F,)) + random[1:SOURCE_BYTES]


def derived_origin(of: bytes, purpose: bytes) -> bytes:
    """The origin of the one message for that purpose that comes of these bytes, however often it is published."""
    return origin_of(session_source(blake2b(of, digest_size=SOURCE_BYTES, person=purpose).digest()), 1)


def is_node_source(source: bytes) -> bool:
    return source[0] >= 0x80


@mypyc_attr(acyclic=True)
class Origins:
    """Which numbers were seen of each of the `most` sources that were heard last: the first, the last, and, bit by bit,
    which of the ORIGINS_WINDOW up to the last were not. What is below these counts as seen.
    """

    __slots__ = ("_most", "_seen")

    def __init__(self, most: int = ORIGINS_MAX) -> None:
        self._seen: dict[bytes, tuple[int, int, int]] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._seen)

    def is_new(self, origin: bytes) -> bool:
        """The message was not seen before; from now on it was."""
        source = origin[:8]
        number = number_of(origin)
        first, last, missing = self._seen.pop(source, (number, number - 1, 0))
        if number > last:
            is_new = True
            ahead = min(number - last, ORIGINS_WINDOW)
            missing = (missing << ahead | (1 << ahead) - 2) & _WINDOW_BITS
            last = number
        elif number >= first:
            bit = 1 << min(last - number, ORIGINS_WINDOW)
            is_new = missing & bit > 0
            missing &= ~bit
        else:
            is_new = last - number < ORIGINS_WINDOW
            if is_new:
                missing |= (1 << last - number) - (2 << last - first)
                first = number
        self._seen[source] = (first, last, missing)
        if len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]
        return is_new
