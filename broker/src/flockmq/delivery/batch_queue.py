"""The send queue to one core: messages in order, gathered into numbered batches, kept until the core has accepted them.

`slot_sender` explains why that is enough. No I/O: the link is passed in. Invariants: at most SLOT_QUEUE_MAX_BYTES and
SLOT_QUEUE_MAX_MESSAGES are in the queue. At most SLOT_WINDOW_BYTES of these are in flight, plus
SLOT_BLOCKED_MAX_BYTES for blocked slots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from flockmq import bounds
from flockmq.routing.sink import CONGESTED, FLOWING, Sink
from flockmq.routing.slots import SlotMessage

T = TypeVar("T")

MESSAGE_BYTES: Final = 23
"""The size of a message in a frame, without its publisher's client id and its packet."""
PACKET_MAX_BYTES: Final = bounds.LINK_FRAME_MAX_BYTES - 128 * 1024
"""A longer run fits into no frame."""


class Carrier(Protocol):
    """Carries batches to one core: a link, or a call if the core is this node."""

    @property
    def data_bytes(self) -> int:
        """The bytes that wait on it."""
        ...

    def send(self, number: int, epoch: int, messages: Sequence[SlotMessage], size_bytes: int) -> None:
        """Send one batch, or runs of QoS 0 packets if `number` is 0."""
        ...


class QueuedMessage(SlotMessage):
    """A slot message at its sender.

    - It is in `copies` queues. `on_accepted` is called when all of these cores have accepted it.
    - `since_s`: when the packet's Message Expiry Interval started to run; 0.0: it has none.
    - `order`: its position among all messages of this sender.
    """

    __slots__ = ("copies", "on_accepted", "order", "since_s", "size_bytes")

    def __init__(
        self,
        source: bytes,
        number: int,
        publisher: bytes,
        version: int,
        packet: bytes,
        slots: list[int],
        order: int,
        on_accepted: Callable[[], None],
        since_s: float,
    ) -> None:
        super().__init__(source, number, publisher, version, packet, slots)
        self.since_s = since_s
        self.order = order
        self.on_accepted = on_accepted
        self.copies = 0
        self.size_bytes = MESSAGE_BYTES + len(publisher) + len(packet)
        """Aging doesn't change the length."""

    def as_of(self, now_s: float) -> SlotMessage:
        """The message to send now: its packet has the remaining expiry interval [MQTT-3.3.2-6]. An expired message is
        sent, too, because of its number; the owner delivers it to nobody. This object itself never changes, because
        other queues hold it, and the owner may be this node."""
        waited_s = int(now_s - self.since_s) if self.since_s else 0
        return self if waited_s <= 0 else self.aged(waited_s)


class QueuedBatch:
    """The messages of one frame, with one number."""

    __slots__ = ("epoch", "messages", "number", "size_bytes")

    def __init__(self, number: int, epoch: int, messages: list[QueuedMessage], size_bytes: int) -> None:
        self.number = number
        self.epoch = epoch
        self.messages = messages
        self.size_bytes = size_bytes

    def release(self, blocked: dict[int, int]) -> list[QueuedMessage]:
        """Remove and return the messages that don't wait for a slot that is blocked at this batch or before it."""
        released: list[QueuedMessage] = []
        kept: list[QueuedMessage] = []
        for message in self.messages:
            is_blocked = False
            for slot in message.slots:
                if blocked.get(slot, self.number + 1) <= self.number:
                    is_blocked = True
                    break
            (kept if is_blocked else released).append(message)
        self.messages = kept
        self.size_bytes -= sum([message.size_bytes for message in released])
        return released

    def send_to(self, carrier: Carrier, now_s: float) -> None:
        messages = [message.as_of(now_s) for message in self.messages]
        carrier.send(self.number, self.epoch, messages, self.size_bytes)


def in_frames(items: Iterable[T], bytes_of: Callable[[T], int]) -> Iterator[tuple[list[T], int]]:
    """Lots of items, in their order, as many as one frame should have, and the bytes of each lot."""
    lot: list[T] = []
    lot_bytes = 0
    for item in items:
        size = bytes_of(item)
        if lot and lot_bytes + size > bounds.LINK_FORWARD_FRAME_BYTES:
            yield lot, lot_bytes
            lot, lot_bytes = [], 0
        lot.append(item)
        lot_bytes += size
    if lot:
        yield lot, lot_bytes


def size_of(message: SlotMessage) -> int:
    return MESSAGE_BYTES + len(message.publisher) + len(message.packet)


def is_congested(was: bool, link_bytes: int, filled: float = 0.0) -> bool:
    """True if a queue of messages for another node is congested. `was`: the former state. `link_bytes`: what waits on
    its link. `filled`: which part of the queue is used.
    """
    if was:
        return link_bytes >= bounds.PEER_DRAINED_BYTES or filled >= 0.25
    return link_bytes > bounds.PEER_BLOCKED_BYTES or filled > 0.5


class BatchQueue(Sink):
    """The send queue to one core. `flow` is CONGESTED while its link is congested or the queue is half full."""

    def __init__(
        self,
        turn: list[Sink],
        core: str,
        epoch: int,
        on_flow: Callable[[Sink], None],
        now_s: Callable[[], float],
        last_number: int = 0,
    ) -> None:
        super().__init__(turn, 5)
        self.core: Final = core
        self.epoch = epoch
        self.view = 0
        """The highest slot epoch that the core has reported: the epoch at which its slots last changed."""
        self.blocked: dict[int, int] = {}
        """Slots for which the core can't commit messages, and the first batch that has messages for each."""
        self.blocked_bytes = 0
        """Bytes of sent messages that wait for blocked slots."""
        self._blocked_up_to = 0
        """Batches up to this number contain only messages for blocked slots."""
        self.carrier: Carrier | None = None
        self.size_bytes = 0
        self.messages = 0
        self.dropped_bytes = 0
        """Dropped bytes of QoS 0 runs."""
        self._on_flow = on_flow
        self._now_s = now_s
        self._waiting: deque[QueuedMessage] = deque()
        self._under_way: deque[QueuedBatch] = deque()
        self._under_way_bytes = 0
        self._runs: list[SlotMessage] = []
        self.last_number = last_number

    def takes(self, packet_bytes: int) -> bool:
        return (
            self.size_bytes + packet_bytes <= bounds.SLOT_QUEUE_MAX_BYTES
            and self.messages < bounds.SLOT_QUEUE_MAX_MESSAGES
        )

    def enqueue(self, message: QueuedMessage) -> None:
        message.copies += 1
        self._waiting.append(message)
        self.size_bytes += message.size_bytes
        self.messages += 1
        self.flush_at_turn_end()

    def enqueue_run(self, run: SlotMessage) -> None:
        """QoS 0: sent in this event-loop iteration, or dropped."""
        self._runs.append(run)
        self.flush_at_turn_end()

    def flush(self) -> None:
        """Send this iteration's messages, within the window. Without a link messages wait, and QoS 0 runs are
        dropped."""
        self.dirty = False
        self.send()
        if self._runs:
            self._send_runs()
        self.update_flow()

    def send(self) -> None:
        carrier = self.carrier
        window_bytes = bounds.SLOT_WINDOW_BYTES + min(self.blocked_bytes, bounds.SLOT_BLOCKED_MAX_BYTES)
        while carrier is not None and self._waiting and self._under_way_bytes < window_bytes:
            batch = self._cut()
            self._under_way.append(batch)
            self._under_way_bytes += batch.size_bytes
            batch.send_to(carrier, self._now_s())

    def _cut(self) -> QueuedBatch:
        """Make a batch of the next messages, of about one frame's size."""
        waiting = self._waiting
        messages = [waiting.popleft()]
        size = messages[0].size_bytes
        while waiting and size + waiting[0].size_bytes <= bounds.LINK_FORWARD_FRAME_BYTES:
            message = waiting.popleft()
            messages.append(message)
            size += message.size_bytes
        self.last_number += 1
        return QueuedBatch(self.last_number, self.epoch, messages, size)

    def _send_runs(self) -> None:
        runs, self._runs = self._runs, []
        carrier = self.carrier
        if carrier is None or self.flow != FLOWING:
            self.dropped_bytes += sum(len(run.packet) for run in runs)
            return
        self.dropped_bytes += sum(len(run.packet) for run in runs if size_of(run) > PACKET_MAX_BYTES)
        for some, size_bytes in in_frames([run for run in runs if size_of(run) <= PACKET_MAX_BYTES], size_of):
            carrier.send(0, self.epoch, some, size_bytes)

    def connected(self, carrier: Carrier) -> None:
        """A link is up: resend the messages that were not accepted, in order, then send the waiting ones."""
        self.carrier = carrier
        for batch in self._under_way:
            batch.send_to(carrier, self._now_s())
        self.send()
        self.update_flow()

    def disconnected(self) -> None:
        self.carrier = None
        self.update_flow()

    def accepted(self, number: int, view: int, blocked: dict[int, int]) -> list[QueuedMessage]:
        """The core has committed the batches up to `number`, for the slots that it knew at `view`. Return the released
        messages: not those for a blocked slot from its given batch on, and none of batches whose epoch is below
        `view`."""
        self.view = max(self.view, view)
        if blocked:
            return self._accepted_apart(number, view, blocked)
        self.blocked = blocked
        self.blocked_bytes = 0
        released: list[QueuedMessage] = []
        under_way = self._under_way
        while under_way and under_way[0].number <= number and under_way[0].epoch >= view:
            batch = under_way.popleft()
            self._under_way_bytes -= batch.size_bytes
            self.size_bytes -= batch.size_bytes
            self.messages -= len(batch.messages)
            released += batch.messages
        return released

    def _accepted_apart(self, number: int, view: int, blocked: dict[int, int]) -> list[QueuedMessage]:
        looked_at = self._blocked_up_to if blocked == self.blocked else 0
        self.blocked, self.blocked_bytes, self._blocked_up_to = blocked, 0, number
        released: list[QueuedMessage] = []
        kept: deque[QueuedBatch] = deque()
        for batch in self._under_way:
            if batch.number <= looked_at:
                self.blocked_bytes += batch.size_bytes
            elif batch.number <= number and batch.epoch >= view:
                size_bytes = batch.size_bytes
                through = batch.release(blocked)
                released += through
                self._under_way_bytes -= size_bytes - batch.size_bytes
                self.size_bytes -= size_bytes - batch.size_bytes
                self.messages -= len(through)
                self.blocked_bytes += batch.size_bytes
            if batch.messages:
                kept.append(batch)
        self._under_way = kept
        return released

    def renew(self, epoch: int) -> list[QueuedMessage]:
        """Remove and return all messages that were not accepted, so that they can be queued again. From now on messages
        are queued under `epoch`."""
        messages = [message for batch in self._under_way for message in batch.messages]
        messages.extend(self._waiting)
        self._under_way.clear()
        self._waiting.clear()
        self._under_way_bytes = self.size_bytes = self.messages = self.blocked_bytes = 0
        self.blocked = {}
        self.epoch = epoch
        return messages

    def update_flow(self) -> None:
        """Set `flow` by how much waits here and on the link."""
        waits_bytes = 0 if self.carrier is None else self.carrier.data_bytes
        fill = max(self.size_bytes / bounds.SLOT_QUEUE_MAX_BYTES, self.messages / bounds.SLOT_QUEUE_MAX_MESSAGES)
        flow = CONGESTED if is_congested(self.flow != FLOWING, waits_bytes, fill) else FLOWING
        if flow != self.flow:
            self.flow = flow
            self._on_flow(self)
