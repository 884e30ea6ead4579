"""Sends messages to the owners of durable sessions: one queue for each core that owns slots, and one for slots without
an owner (UNASSIGNED, core ""). No I/O: links and the slot table are passed in.

A message is queued once for each core that owns some of its slots. Its publisher is told when each of these cores has
committed it for all of its slots. Invariants:

- A message that isn't accepted stays here, and no publisher is told before.
- An owner gets the messages of a source for a slot in the order of their numbers. It may get some twice: it recognizes
  them, because it keeps the last number of each source for each slot.

Why this holds. `epoch`: the position of the slot table's log under which the messages of a batch were queued; each
batch carries it.

1. Within a queue no message overtakes another. Its batches have rising numbers, and are sent in that order. After a
   lost link all batches that weren't accepted are sent again, from the first on. The core takes none twice.
2. A queue's epoch changes only in `_renew`. When owners changed, `_renew` takes all messages that aren't accepted out
   of the queues that lost or gained slots. It queues them again, in their original order, for the current owners of
   their slots among these queues, under the new epoch and before any newer message. So while a queue
   has one epoch, it serves the same slots, and its batches begin with all older unaccepted messages for these slots.
3. A core that gained a slot at log position g takes messages for it only from batches with an epoch ≥ g. The sender of
   these knew of the move, so they come after the messages that it queued again (2). Older batches count for the core's
   other slots. Batches with an epoch that the core hasn't reached wait. So no message overtakes another one that is
   still in flight.
4. What the former owner accepted is committed, and so are its sequence numbers. The new owner reads these before it
   takes anything. What the former owner hasn't committed it never will, because the slot is fenced.
5. A core acknowledges with its `view`, the epoch at which its slots last changed. A batch under an older epoch may have
   missed a slot, so its acknowledgement doesn't count. When this node has reached that view, it renews the queue (2).
   So an accepted message was taken for every slot that the core had.
6. A slot may be *blocked*: its owner can't commit messages for it, or hasn't loaded its sessions. Then the core
   acknowledges batches except for such slots, and names the first batch with messages for each of them. These messages
   stay in their batches, in order. A core takes the messages of a slot in order, so it never commits a later number of
   a source before a lower one. If many messages are blocked, publishers to these slots pause. What they sent before (up
   to SLOT_BLOCKED_MAX_BYTES) takes no room in the window of others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, cast

from flockmq import bounds
from flockmq.delivery.batch_queue import MESSAGE_BYTES, BatchQueue, Carrier, QueuedMessage
from flockmq.delivery.slot_back_pressure import SlotBackPressure
from flockmq.membership.slot_table import SlotMove, SlotTable
from flockmq.mqtt.message import NO_EXPIRY, Publish
from flockmq.routing.message_id import node_source, number_of, source_of
from flockmq.routing.sink import FLOWING, Sink
from flockmq.routing.slots import SlotMessage, may_expire, slot_of
from flockmq.routing.targets import SlotDispatcher, SlotSet

UNASSIGNED: Final = ""


class SlotSender(SlotDispatcher):
    """One per node. `find_carrier` returns the link to a core, if there is one. `on_drained` is called with the queue
    or slot that flows again, `on_congested` when one stops flowing."""

    def __init__(
        self,
        turn: list[Sink],
        me: str,
        table: SlotTable,
        find_carrier: Callable[[str], Carrier | None],
        on_drained: Callable[[Sink], None],
        on_congested: Callable[[], None],
        now_s: Callable[[], float],
    ) -> None:
        super().__init__()
        self.refused = 0
        """Messages refused because Redis is short of memory."""
        self.source = node_source(me)
        self._turn = turn
        self._find_carrier = find_carrier
        self._on_drained = on_drained
        self._on_congested = on_congested
        self._now_s = now_s
        self._queues: dict[str, BatchQueue] = {}
        self.back_pressure: Final = SlotBackPressure(turn, self._flow_changed, now_s)
        self._table = table
        self._owners: list[str] = table.owners
        self._moves = 0
        self._last_number = 0
        self._last_order = 0
        self._last_batch = 0
        """The highest batch number of queues that were removed."""
        self._purged: dict[str, None] = {}
        self._dropped_bytes = 0
        self._queue(UNASSIGNED)

    # --- for the router ---------------------------------------------------------------------------------------------

    def put_run(self, slots: SlotSet, version: int, chunk: bytes, publisher: bytes) -> None:
        run = SlotMessage(b"", 0, publisher, version, chunk)
        for queue in self._queues_of(slots):
            queue.enqueue_run(run)

    def takes(self, slots: SlotSet, message: Publish, *, can_be_refused: bool = True) -> bool:
        if self.is_short and not self.back_pressure.may_put(slots.numbers, message.topic, can_be_refused):
            self.refused += 1
            return False
        return self._has_room(slots, message)

    def _has_room(self, slots: SlotSet, message: Publish) -> bool:
        size = MESSAGE_BYTES + len(message.publisher) + len(message.packet)
        return all(queue.takes(size) for queue in self._queues_of(slots))

    def put_acknowledged(self, slots: SlotSet, message: Publish, on_accepted: Callable[[], None]) -> int:
        if not message.must_be_logged() and not self._has_room(slots, message):
            return -1
        since_s = self._now_s() if message.expiry_s != NO_EXPIRY and message.version == 5 else 0.0
        origin, publisher, version = message.origin, message.publisher, message.version
        posted = self._numbered(origin, publisher, version, message.packet, slots.numbers, on_accepted, since_s)
        for queue in self._queues_of(slots):
            queue.enqueue(posted)
        return 1

    def _numbered(
        self,
        origin: bytes,
        publisher: bytes,
        version: int,
        packet: bytes,
        slots: list[int],
        on_accepted: Callable[[], None],
        since_s: float,
    ) -> QueuedMessage:
        """`origin` b"": this node is the source, and numbers the message."""
        if origin:
            source, number = source_of(origin), number_of(origin)
        else:
            self._last_number += 1
            source, number = self.source, self._last_number
        self._last_order += 1
        order = self._last_order
        return QueuedMessage(source, number, publisher, version, packet, slots, order, on_accepted, since_s)

    def slow_queues(self, slots: SlotSet, publisher: bytes) -> list[Sink]:
        slow: list[Sink] = [queue for queue in self._queues_of(slots) if queue.flow != FLOWING]
        congested = self.back_pressure.congested
        if congested:
            own = slot_of(publisher)
            slow += [congested[slot] for slot in slots.numbers if slot in congested and slot != own]
        return slow

    def way_to(self, slot: int, publisher: bytes) -> Sink:
        congested = self.back_pressure.congested.get(slot)
        return self._queue_to(slot) if congested is None or slot == slot_of(publisher) else congested

    def _queue_to(self, slot: int) -> BatchQueue:
        return self._queue(self._owners[slot])

    def put_shared_run(self, slot: int, version: int, chunk: bytes) -> None:
        self._queue_to(slot).enqueue_run(SlotMessage(b"", 0, b"", version, chunk))

    def takes_shared(self, slot: int, chunk_bytes: int) -> bool:
        if self.is_short and not self.back_pressure.members_take(slot):
            return False
        return self._queue_to(slot).takes(MESSAGE_BYTES + chunk_bytes)

    def put_shared(
        self, slot: int, version: int, chunk: bytes, on_accepted: Callable[[], None], origin: bytes = b""
    ) -> bool:
        if not self.takes_shared(slot, len(chunk)):
            return False
        since_s = self._now_s() if may_expire(version) else 0.0
        self._queue_to(slot).enqueue(self._numbered(origin, b"", version, chunk, [slot], on_accepted, since_s))
        return True

    def _queues_of(self, slots: SlotSet) -> list[BatchQueue]:
        """The queues to these slots. They are cached in the SlotSet until any slot moves."""
        if slots.queues_version != self._moves:
            slots.queues = [self._queue(core) for core in self._owners_of(slots.numbers)]
            slots.queues_version = self._moves
        return cast("list[BatchQueue]", slots.queues)

    def _owners_of(self, slots: list[int]) -> list[str]:
        return list(dict.fromkeys(self._owners[slot] for slot in slots))

    # --- what the log says ------------------------------------------------------------------------------------------

    def slots_moved(self, moves: list[SlotMove]) -> None:
        """These slots have new owners, at the current log position."""
        self._moves += 1
        moved: dict[str, None] = {}
        for _, former, owner in sorted(moves):
            moved[former] = moved[owner] = None
        moved.update(dict.fromkeys(self._reached()))
        self._renew(moved)
        self._remove_purged()

    def look(self) -> None:
        """Renew the queues of cores whose reported view this node has now reached."""
        if reached := self._reached():
            self._renew(reached)
            self._remove_purged()

    def _reached(self) -> list[str]:
        epoch: int = self._table.epoch
        return [core for core, queue in self._queues.items() if queue.epoch < queue.view <= epoch]

    def gone(self, core: str) -> None:
        """The core was purged. Its queue is removed when it owns no slot any more."""
        self._purged[core] = None
        self._remove_purged()

    def is_behind(self) -> bool:
        """Some core acknowledged with a view that this node hasn't reached."""
        return any(queue.epoch < queue.view for queue in self._queues.values())

    def _renew(self, cores: Collection[str]) -> None:
        """Queue the unaccepted messages of these cores again, in their original order, for the current owners of their
        slots (point 2 of the module's docstring)."""
        copies: list[QueuedMessage] = []
        for core in cores:
            copies += self._queue(core).renew(self._table.epoch)
        for message in sorted(dict.fromkeys(copies), key=_order):
            for core in self._owners_of(message.slots):
                if core in cores:
                    self._queues[core].enqueue(message)
        for core in cores:
            self._queues[core].send()
            self._queues[core].update_flow()
        self._release(copies)

    def _queue(self, core: str) -> BatchQueue:
        queue = self._queues.get(core)
        if queue is None:
            after = self._last_batch  # a core that comes back remembers its last number
            epoch = self._table.epoch
            queue = self._queues[core] = BatchQueue(self._turn, core, epoch, self._flow_changed, self._now_s, after)
            if core != UNASSIGNED:
                queue.carrier = self._find_carrier(core)
        return queue

    def _remove_purged(self) -> None:
        for core in [core for core in self._purged if core not in self._owners]:
            del self._purged[core]
            if (queue := self._queues.pop(core, None)) is not None:
                self._dropped_bytes += queue.dropped_bytes
                self._last_batch = max(self._last_batch, queue.last_number)
                queue.disconnected()  # it is empty, but its link may be full: resume its publishers

    # --- links ------------------------------------------------------------------------------------------------------

    def carrier_of(self, core: str) -> Carrier | None:
        queue = self._queues.get(core)
        return None if queue is None else queue.carrier

    def linked(self, core: str, carrier: Carrier) -> None:
        if (queue := self._queues.get(core)) is not None:
            queue.connected(carrier)

    def unlinked(self, core: str) -> None:
        if (queue := self._queues.get(core)) is not None:
            queue.disconnected()

    def accepted(self, core: str, number: int, view: int, blocked: dict[int, int]) -> None:
        """The core has committed all batches up to `number`, for all slots that it has owned since `view`, except for
        messages to `blocked` slots from the given batches on."""
        queue = self._queues.get(core)
        if queue is None:
            return
        released = queue.accepted(number, view, blocked)
        if queue.blocked:
            self._congest_blocked(queue)
        queue.send()
        queue.update_flow()
        self._release(released)

    def _release(self, messages: list[QueuedMessage]) -> None:
        """Each message has one copy less. If that was the last one, its publisher is called back, and may queue
        more."""
        through: list[QueuedMessage] = []
        for message in messages:
            message.copies -= 1
            if message.copies == 0:
                through.append(message)
        for message in through:
            message.on_accepted()

    # --- how it flows -----------------------------------------------------------------------------------------------

    def _congest_blocked(self, queue: BatchQueue) -> None:
        """Pause publishers to blocked slots before their messages fill the window."""
        if queue.blocked_bytes > bounds.SLOT_BLOCKED_BYTES:
            for slot in queue.blocked:
                self.back_pressure.congest(slot, True)

    def redis_is_short(self, is_short: bool) -> None:
        self.is_short = is_short
        self.back_pressure.redis_is_short(is_short)

    def update_flow(self) -> None:
        """Check links that were congested, and reports of congested slots that may have expired."""
        for queue in list(self._queues.values()):
            if queue.flow != FLOWING:
                queue.update_flow()
            if queue.blocked:
                self._congest_blocked(queue)
        self.back_pressure.look()

    def _flow_changed(self, sink: Sink) -> None:
        """The sink is a queue or a slot."""
        if sink.flow == FLOWING:
            self.congested -= 1
            self._on_drained(sink)
        else:
            self.congested += 1
            self._on_congested()

    @property
    def waiting_messages(self) -> int:
        """QoS ≥ 1 messages that some owner has not accepted; one copy for each owner counts."""
        return sum(queue.messages for queue in self._queues.values())

    @property
    def waiting_bytes(self) -> int:
        return sum(queue.size_bytes for queue in self._queues.values())

    @property
    def blocked_bytes(self) -> int:
        """Bytes of messages that an owner has received but can't commit."""
        return sum(queue.blocked_bytes for queue in self._queues.values())

    @property
    def unassigned_messages(self) -> int:
        """QoS ≥ 1 messages whose slots have no owner."""
        return self._queues[UNASSIGNED].messages

    @property
    def dropped_bytes(self) -> int:
        """Dropped QoS 0 bytes: there was no link, or it was congested."""
        return self._dropped_bytes + sum(queue.dropped_bytes for queue in self._queues.values())


def _order(message: QueuedMessage) -> int:
    return message.order
