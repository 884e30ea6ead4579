"""A publisher's connection: sends messages within a window, and processes acknowledgements."""

from __future__ import annotations

from typing import Final

from flockmq.bench.errors import Failed
from flockmq.bench.inbox import ACK_BYTES, PUBACK, PUBCOMP, PUBREC, PUBREL, READ_BYTES, Tally, acks
from flockmq.bench.link import BenchLink
from flockmq.bench.message_ring import MessageRing

WRITE_MAX_BYTES: Final = 128 * 1024


class BenchOutbox:
    """A message is in flight until all its subscribers have it and, at QoS 1 and 2, its publisher got the
    acknowledgement. So no queue grows in a broker that reads faster than it delivers, and the rate it can sustain is
    measured.
    """

    def __init__(
        self,
        link: BenchLink,
        ring: MessageRing,
        number: int,
        tally: Tally,
        *,
        qos: int,
        copies: int,
        window: int,
        batch: int,
    ) -> None:
        self.link = link
        self.descriptor = link.fileno()
        self.replies = bytearray()
        self.sent = 0
        self._number = number
        self._settled = tally.settled
        self._copies = copies
        self._qos = qos
        self._last_ack = PUBACK if qos == 1 else PUBCOMP
        self._window = window
        self._size = ring.written_bytes
        self._count = ring.count
        self._batch = min(batch, max(1, WRITE_MAX_BYTES // ring.written_bytes))
        self._written = memoryview(ring.written)
        self._place = 0
        self._acknowledged = 0
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._kept = 0

    def under_way(self) -> int:
        settled = self._settled[self._number]
        done = settled if self._copies == 1 else settled // self._copies
        if self._qos and self._acknowledged < done:
            done = self._acknowledged
        return self.sent - done

    def unsettled(self) -> int:
        """Copies of sent messages that neither arrived nor are known to be lost."""
        return self.sent * self._copies - self._settled[self._number]

    def publish(self) -> bool:
        """Write pending replies, then at most one write of new messages. Returns True if it could continue at once."""
        if (self.replies or self.link.unsent) and not self.flush():
            return False
        room = self._window - self.under_way()
        if room <= 0:
            return False
        count = min(room, self._batch, self._count - self._place)
        at = self._place * self._size
        self._place = (self._place + count) % self._count
        self.sent += count
        return self.link.post(self._written[at : at + count * self._size]) and room > count

    def flush(self) -> bool:
        """Write what waits. Returns True if nothing waits any more."""
        if not self.link.flush():
            return False
        if self.replies:
            framed = self.link.framed(bytes(self.replies))
            self.replies.clear()
            return self.link.post(framed)
        return True

    def receive(self) -> None:
        """Read once. Each acknowledgement moves the window or is answered."""
        kept = self._kept
        received = self.link.receive_into(self._view[kept : kept + READ_BYTES - ACK_BYTES])
        end = kept + received
        whole = end // ACK_BYTES * ACK_BYTES
        at = 0
        while at < whole:
            column = self._buffer[at:whole:ACK_BYTES]
            first = bytes(column[:1])
            stop = at + (len(column) - len(column.lstrip(first))) * ACK_BYTES
            if first == self._last_ack:
                self._acknowledged += (stop - at) // ACK_BYTES
                if self._acknowledged > self.sent:
                    raise Failed(f"{self.link.target}: more was acknowledged than published")
            elif first == PUBREC and self._qos == 2:
                self.replies += acks(PUBREL, self._buffer[at + 2 : stop : 4], self._buffer[at + 3 : stop : 4])
            else:
                raise Failed(f"{self.link.target}: a publisher got {self._buffer[at : at + 8].hex(' ')}")
            at = stop
        self._kept = end - whole
        self._buffer[: self._kept] = self._buffer[whole:end]
