"""The way to one core: messages in order, gathered into numbered batches, kept until the core has accepted them.

`slot_sender` says why that is enough. Pure: the link is passed in. What always holds: no more than
COURIER_LANE_MAX_BYTES and COURIER_LANE_MAX_MESSAGES wait here. Of these no more than COURIER_WINDOW_BYTES are under
way, beside COURIER_STUCK_MAX_BYTES for slots that are stuck.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from flockmq import bounds
from flockmq.delivery.slot_message import SlotMessage
from flockmq.delivery.watermarks import is_congested
from flockmq.routing.sink import CONGESTED, FLOWING, Sink

MESSAGE_BYTES: Final = 23
"""What a message takes in a frame beside its publisher's client id and its packet."""
PACKET_MAX_BYTES: Final = bounds.LINK_FRAME_MAX_BYTES - 128 * 1024
"""A run beyond it has no frame it fits into."""


class Carrier(Protocol):
    """What brings batches to one core: a link, or, where that is this node, a call."""

    @property
    def data_bytes(self) -> int:
        """What waits on it."""
        ...

    def send(self, number: int, epoch: int, messages: Sequence[SlotMessage], size_bytes: int) -> None:
        """One batch, or, of number 0, runs of QoS 0 packets."""
        ...


class Posted(SlotMessage):
    """A message at its sender. It is in `copies` lanes, and `on_accepted` is called when all are accepted. `since_s`:
    from when on the Message Expiry Interval in the packet runs; 0.0: it has none. `order`: its place among all at this
    sender.
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
        self.size_bytes = size_of(self)
        """Ageing changes no length."""

    def as_of(self, now_s: float) -> SlotMessage:
        """As it is sent now: the packet says what is left of its expiry [MQTT-3.3.2-6]. One that has expired is sent
        too, because of its number; the owner gives it to nobody. The message itself never changes: other lanes have it,
        and the owner may be this node.
        """
        waited_s = int(now_s - self.since_s) if self.since_s else 0
        return self if waited_s <= 0 else self.aged(waited_s)


class QueuedBatch:
    """Messages that go in one frame, under one number."""

    __slots__ = ("epoch", "messages", "number", "size_bytes")

    def __init__(self, number: int, epoch: int, messages: list[Posted], size_bytes: int) -> None:
        self.number = number
        self.epoch = epoch
        self.messages = messages
        self.size_bytes = size_bytes

    def release(self, stuck: dict[int, int]) -> list[Posted]:
        """Those messages that wait for none of the slots that are stuck at this batch, or before it."""
        released: list[Posted] = []
        kept: list[Posted] = []
        for message in self.messages:
            is_stuck = False
            for slot in message.slots:
                if stuck.get(slot, self.number + 1) <= self.number:
                    is_stuck = True
                    break
            (kept if is_stuck else released).append(message)
        self.messages = kept
        self.size_bytes -= sum([message.size_bytes for message in released])
        return released

    def give(self, carrier: Carrier, now_s: float) -> None:
        messages = [message.as_of(now_s) for message in self.messages]
        carrier.send(self.number, self.epoch, messages, self.size_bytes)


def size_of(message: SlotMessage) -> int:
    return MESSAGE_BYTES + len(message.publisher) + len(message.packet)


class BatchQueue(Sink):
    """The way to one core. `flow` is CONGESTED while its link is, or half of what it holds at most waits."""

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
        """The highest that the core said."""
        self.stuck: dict[int, int] = {}
        """Slots for which the core can't commit what it has, and the first batch that has something for each."""
        self.stuck_bytes = 0
        """What waits for them, and was sent."""
        self._stuck_up_to = 0
        """Up to this batch only messages for stuck slots are left."""
        self.carrier: Carrier | None = None
        self.size_bytes = 0
        self.messages = 0
        self.dropped_bytes = 0
        """Of QoS 0 runs."""
        self._on_flow = on_flow
        self._now_s = now_s
        self._waiting: deque[Posted] = deque()
        self._under_way: deque[QueuedBatch] = deque()
        self._under_way_bytes = 0
        self._runs: list[SlotMessage] = []
        self.last_number = last_number

    def takes(self, packet_bytes: int) -> bool:
        return (
            self.size_bytes + packet_bytes <= bounds.COURIER_LANE_MAX_BYTES
            and self.messages < bounds.COURIER_LANE_MAX_MESSAGES
        )

    def post(self, message: Posted) -> None:
        message.copies += 1
        self._waiting.append(message)
        self.size_bytes += message.size_bytes
        self.messages += 1
        self._soil()

    def post_run(self, run: SlotMessage) -> None:
        """QoS 0: goes with this turn or not at all."""
        self._runs.append(run)
        self._soil()

    def _soil(self) -> None:
        if not self.dirty:
            self.dirty = True
            self.turn.append(self)

    def flush(self) -> None:
        """Hand this turn's messages to the link, within the window; without one messages wait and runs are dropped."""
        self.dirty = False
        self.send()
        if self._runs:
            self._send_runs()
        self.gauge()

    def send(self) -> None:
        carrier = self.carrier
        window_bytes = bounds.COURIER_WINDOW_BYTES + min(self.stuck_bytes, bounds.COURIER_STUCK_MAX_BYTES)
        while carrier is not None and self._waiting and self._under_way_bytes < window_bytes:
            batch = self._cut()
            self._under_way.append(batch)
            self._under_way_bytes += batch.size_bytes
            batch.give(carrier, self._now_s())

    def _cut(self) -> QueuedBatch:
        """The next messages, as many as one frame should have."""
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
        frame: list[SlotMessage] = []
        frame_bytes = 0
        for run in runs:
            size = size_of(run)
            if size > PACKET_MAX_BYTES:
                self.dropped_bytes += len(run.packet)
                continue
            if frame and frame_bytes + size > bounds.LINK_FORWARD_FRAME_BYTES:
                carrier.send(0, self.epoch, frame, frame_bytes)
                frame, frame_bytes = [], 0
            frame.append(run)
            frame_bytes += size
        if frame:
            carrier.send(0, self.epoch, frame, frame_bytes)

    def connected(self, carrier: Carrier) -> None:
        """What was not accepted goes again, in order, then what waits."""
        self.carrier = carrier
        for batch in self._under_way:
            batch.give(carrier, self._now_s())
        self.send()
        self.gauge()

    def disconnected(self) -> None:
        self.carrier = None
        self.gauge()

    def accepted(self, number: int, view: int, stuck: dict[int, int]) -> list[Posted]:
        """The core has the batches up to `number`, as far as it knew their epochs: the messages that are through. Not
        those for a slot that is stuck, from the batch on that is named.
        """
        self.view = max(self.view, view)
        if stuck:
            return self._accepted_apart(number, view, stuck)
        self.stuck = stuck
        self.stuck_bytes = 0
        released: list[Posted] = []
        under_way = self._under_way
        while under_way and under_way[0].number <= number and under_way[0].epoch >= view:
            batch = under_way.popleft()
            self._under_way_bytes -= batch.size_bytes
            self.size_bytes -= batch.size_bytes
            self.messages -= len(batch.messages)
            released += batch.messages
        return released

    def _accepted_apart(self, number: int, view: int, stuck: dict[int, int]) -> list[Posted]:
        looked_at = self._stuck_up_to if stuck == self.stuck else 0
        self.stuck, self.stuck_bytes, self._stuck_up_to = stuck, 0, number
        released: list[Posted] = []
        kept: deque[QueuedBatch] = deque()
        for batch in self._under_way:
            if batch.number <= looked_at:
                self.stuck_bytes += batch.size_bytes
            elif batch.number <= number and batch.epoch >= view:
                size_bytes = batch.size_bytes
                through = batch.release(stuck)
                released += through
                self._under_way_bytes -= size_bytes - batch.size_bytes
                self.size_bytes -= size_bytes - batch.size_bytes
                self.messages -= len(through)
                self.stuck_bytes += batch.size_bytes
            if batch.messages:
                kept.append(batch)
        self._under_way = kept
        return released

    def renew(self, epoch: int) -> list[Posted]:
        """The messages that were not accepted, which are put again; what comes from now on was put under `epoch`."""
        messages = [message for batch in self._under_way for message in batch.messages]
        messages.extend(self._waiting)
        self._under_way.clear()
        self._waiting.clear()
        self._under_way_bytes = self.size_bytes = self.messages = self.stuck_bytes = 0
        self.stuck = {}
        self.epoch = epoch
        return messages

    def gauge(self) -> None:
        """Does it flow?"""
        waits_bytes = 0 if self.carrier is None else self.carrier.data_bytes
        fill = max(self.size_bytes / bounds.COURIER_LANE_MAX_BYTES, self.messages / bounds.COURIER_LANE_MAX_MESSAGES)
        flow = CONGESTED if is_congested(self.flow != FLOWING, waits_bytes, fill) else FLOWING
        if flow != self.flow:
            self.flow = flow
            self._on_flow(self)
