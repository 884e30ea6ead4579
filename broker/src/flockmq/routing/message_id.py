"""The 128-bit message id ("origin"): its source (8 bytes) and its number there (u64), which only grows. It works like
Kafka's producer id and sequence number. No I/O.

A source is a node, from its start to its end, or a session: the QoS 2 messages of a durable session keep their ids when
another node sends them again. After a reconnect the client's messages have a new source, because they may overtake
messages of the former connection that are still on their way.

Messages of one source are sent in the order of their numbers, and slots receive them in that order
(`delivery.slot_acceptance`). A node may receive them in another order: a message that another node sends again may
arrive before earlier ones from the former node.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import ORIGINS_MAX, ORIGINS_WINDOW
from flockmq.routing.oldest import forget_oldest

ORIGIN: Final = 0x40
"""Flag in the MQTT version of forwarded data: each packet is preceded by its message id."""
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
    """The common part of all incarnations of one process: `name@` and 16 of the 20 hex digits."""
    name, _, digits = incarnation.rpartition("@")
    return f"{name}@{digits[:PROCESS_DIGITS]}"


def node_source(incarnation: str) -> bytes:
    """The source of a node, from its start to its end, for all its incarnations; the first bit is set. A node that was
    purged and rejoins resends what wasn't accepted, and continues its numbers.
    """
    digest = blake2b(process_of(incarnation).encode(), digest_size=SOURCE_BYTES).digest()
    return bytes((digest[0] | 0x80,)) + digest[1:]


def session_source(random: bytes) -> bytes:
    """The source of a session, from SOURCE_BYTES random bytes; the first bit isn't set."""
    return bytes((random[0] & 0x7F,)) + random[1:SOURCE_BYTES]


def derived_origin(of: bytes, purpose: bytes) -> bytes:
    """The message id of the single message for this purpose that is derived from these bytes; always the same."""
    return origin_of(session_source(blake2b(of, digest_size=SOURCE_BYTES, person=purpose).digest()), 1)


def is_node_source(source: bytes) -> bool:
    return source[0] >= 0x80


@mypyc_attr(acyclic=True)
class Origins:
    """The numbers that were seen from each of the `most` most recent sources: the first, the last, and a bit mask of
    the missing ones among the ORIGINS_WINDOW numbers up to the last. Older numbers count as seen.
    """

    __slots__ = ("_most", "_seen")

    def __init__(self, most: int = ORIGINS_MAX) -> None:
        self._seen: dict[bytes, tuple[int, int, int]] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._seen)

    def is_new(self, origin: bytes) -> bool:
        """True if the message wasn't seen before; from now on it was."""
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
            forget_oldest(self._seen)
        return is_new
