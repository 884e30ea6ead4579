"""Checks every message that a subscriber gets, mostly without handling single messages.

A publisher's messages arrive in the order of its ring [MQTT-4.6.0-6]. So the received bytes are compared, many messages
at once, with the bytes that come next in the ring; only where they differ is a single message parsed. Messages of
several publishers alternate, each in its own order. At QoS 1 and 2 the packet ids are the broker's: before the
comparison they are replaced by 0, for all packets at once, and acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flockmq.bench.errors import Failed
from flockmq.bench.link import BenchLink
from flockmq.bench.message_ring import PLACE_LETTERS, PUBLISHER_LETTERS, MessageRing, number

READ_BYTES: Final = 256 * 1024
HEAD_BYTES: Final = 3
"""First byte, Remaining Length and, mostly, the first byte of the topic's length: they identify our PUBLISH packets."""
ACK_BYTES: Final = 4
PUBACK, PUBREC, PUBREL, PUBCOMP = b"\x40", b"\x50", b"\x62", b"\x70"
TWO: Final = b"\x02"


class Tally:
    """Counts of messages. `settled[p]`: copies of publisher p's messages that arrived or are known to be lost."""

    __slots__ = ("delivered", "late", "lost", "repeated", "settled")

    def __init__(self, publishers: int) -> None:
        self.settled = [0] * publishers
        self.delivered = 0
        self.lost = 0
        self.repeated = 0
        self.late = 0
        """Messages that arrived after one that was published later."""


class BenchInbox:
    """A subscriber's connection, and the next expected message of each of its publishers.

    `rings`: those of its publishers; the first of them has the number `first` in the tally.
    """

    def __init__(self, link: BenchLink, rings: Sequence[MessageRing], first: int, qos: int, tally: Tally) -> None:
        ring = rings[0]
        self.link = link
        self.descriptor = link.fileno()
        self.replies = bytearray()
        """Acknowledgements to write, without the link's framing."""
        self._rings = rings
        self._first = first
        self._qos = qos
        self._tally = tally
        self._size = ring.arriving_bytes
        self._ids_at = ring.packet_id_offset
        self._payload_at = ring.payload_offset
        self._head = ring.arriving[:HEAD_BYTES]
        self._next = [0] * len(rings)
        self._missing: list[set[int]] = [set() for _ in rings]
        self._buffer = bytearray(READ_BYTES + self._size)
        self._view = memoryview(self._buffer)
        self._kept = 0
        """Bytes at the buffer's front: an incomplete packet."""

    def receive(self) -> None:
        """Read once, check all complete packets, and collect their acknowledgements."""
        kept = self._kept
        received = self.link.receive_into(self._view[kept : kept + READ_BYTES])
        if received:
            self._take(kept + received)

    def flush(self) -> bool:
        """Write what waits. Returns True if nothing waits any more."""
        if not self.link.flush():
            return False
        if self.replies:
            framed = self.link.framed(bytes(self.replies))
            self.replies.clear()
            return self.link.post(framed)
        return True

    def _take(self, end: int) -> None:
        size, at = self._size, 0
        while True:
            whole = (end - at) // size
            if self._qos:
                whole = self._leading(at, whole)
                if whole:
                    self._answer(at, whole)
            if whole:
                self._account(at, at + whole * size)
                at += whole * size
            elif self._qos == 2 and end - at >= ACK_BYTES and self._buffer[at] == PUBREL[0]:
                at = self._complete(at, end)
            else:
                break
        if end - at >= size:
            raise Failed(f"{self.link.target}: a subscriber got a packet that begins {self._hex(at)}")
        self._kept = end - at
        if at and self._kept:
            self._buffer[: self._kept] = self._buffer[at:end]

    def _leading(self, at: int, whole: int) -> int:
        """The number of consecutive PUBLISH packets at `at`."""
        stop = at + whole * self._size
        for offset in range(HEAD_BYTES):
            column = self._buffer[at + offset : stop : self._size]
            same = len(column) - len(column.lstrip(self._head[offset : offset + 1]))
            stop = min(stop, at + same * self._size)
        return (stop - at) // self._size

    def _answer(self, at: int, count: int) -> None:
        """Collect PUBACK or PUBREC for `count` packets, and set their packet ids to 0."""
        size = self._size
        high, stop = at + self._ids_at, at + count * size
        self.replies += acks(
            PUBACK if self._qos == 1 else PUBREC, self._buffer[high:stop:size], self._buffer[high + 1 : stop : size]
        )
        zeros = bytes(count)
        self._buffer[high:stop:size] = zeros
        self._buffer[high + 1 : stop : size] = zeros

    def _complete(self, at: int, end: int) -> int:
        """Collect PUBCOMP for each of the PUBRELs at `at`. Returns where they end."""
        column = self._buffer[at : end - ACK_BYTES + 1 : ACK_BYTES]
        stop = at + (len(column) - len(column.lstrip(PUBREL))) * ACK_BYTES
        self.replies += acks(PUBCOMP, self._buffer[at + 2 : stop : ACK_BYTES], self._buffer[at + 3 : stop : ACK_BYTES])
        return stop

    def _account(self, at: int, end: int) -> None:
        size, rings, places = self._size, self._rings, self._next
        whose = 0
        while at < end:
            if len(rings) > 1:
                whose = self._publisher(at)
            ring, place = rings[whose], places[whose]
            run = self._run(at, min((end - at) // size, ring.count - place), ring, place)
            if run:
                places[whose] = (place + run) % ring.count
                self._tally.settled[self._first + whose] += run
                self._tally.delivered += run
            else:
                self._astray(at, whose)
                run = 1
            at += run * size

    def _publisher(self, at: int) -> int:
        at += self._payload_at
        whose = self._number(at, PUBLISHER_LETTERS) - self._first
        if not 0 <= whose < len(self._rings):
            raise Failed(f"{self.link.target}: a message of an unknown publisher arrived: {self._hex(at)}")
        return whose

    def _run(self, at: int, most: int, ring: MessageRing, place: int) -> int:
        """How many of the next packets, at most `most`, equal the ring: tries all, otherwise uses doubling steps."""
        size, view, follows = self._size, self._view, ring.arriving.startswith
        if follows(view[at : at + most * size], place * size):
            return most
        run, step, growing = 0, 1, True
        while step:
            ahead = run + step
            if ahead < most and follows(view[at + run * size : at + ahead * size], (place + run) * size):
                run = ahead
                step = step * 2 if growing else step // 2
            else:
                growing = False
                step //= 2
        return run

    def _astray(self, at: int, whose: int) -> None:
        """One packet that isn't the next one: messages are missing, or this one is late or a duplicate."""
        ring, expected, missing = self._rings[whose], self._next[whose], self._missing[whose]
        place = self._number(at + self._payload_at + PUBLISHER_LETTERS, PLACE_LETTERS)
        if place >= ring.count or not ring.arriving.startswith(self._view[at : at + self._size], place * self._size):
            raise Failed(f"{self.link.target}: a message arrived that nobody published: {self._hex(at)}")
        tally, gap = self._tally, (place - expected) % ring.count
        if gap < ring.count // 2:
            missing.update((expected + skipped) % ring.count for skipped in range(gap))
            tally.lost += gap
            tally.delivered += 1
            tally.settled[self._first + whose] += gap + 1
            self._next[whose] = (place + 1) % ring.count
        elif place in missing:
            missing.remove(place)
            tally.lost -= 1
            tally.late += 1
            tally.delivered += 1
        else:
            tally.repeated += 1

    def _number(self, at: int, count: int) -> int:
        try:
            return number(bytes(self._view[at : at + count]))
        except ValueError:
            raise Failed(f"{self.link.target}: a payload arrived that nobody sent: {self._hex(at)}") from None

    def _hex(self, at: int) -> str:
        return bytes(self._view[at : at + 16]).hex(" ")


def acks(first_byte: bytes, high: bytes | bytearray, low: bytes | bytearray) -> bytes:
    """One acknowledgement for each packet id; the ids are given as columns of their bytes."""
    count = len(high)
    packets = bytearray(ACK_BYTES * count)
    packets[0::4] = first_byte * count
    packets[1::4] = TWO * count
    packets[2::4] = high
    packets[3::4] = low
    return bytes(packets)
