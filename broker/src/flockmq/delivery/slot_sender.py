"""Messages on their way to the owners of sessions that last: a lane for each core that owns slots, and one for slots
without an owner (parked, core ""). Pure: links and the table of slots are passed in.

A message is put once, into the lanes of the cores that own its slots. Its publisher is told when each core has
committed it for all of its slots. What always holds:
- What isn't accepted stays here, and no publisher is told before.
- An owner gets the messages of a source for a slot in the order of their numbers. It may get some again: it knows them
  by its mark, the last number that it took from that source for that slot.

Why this holds. `epoch`: the place in the log of slots under which the messages of a batch were put; each batch says it.
1. A lane is a queue. Its batches have rising numbers, and go in that order. After a lost link all that weren't accepted
   go again, from the first on. The core takes none twice. So within a lane no message passes another.
2. A lane's epoch changes only in `_renew`. When owners changed, it takes all that isn't accepted out of the lanes that
   lost or gained slots, and puts it again, in its first order, into those of these lanes that own its slots now, under
   the new epoch, before anything newer. So what is in a lane under an epoch is behind all that is older, isn't
   accepted, and is for the same slots.
3. A core that gained a slot at place g takes messages for it only from batches with an epoch ≥ g. Their sender knew of
   the move, so they are behind what it put again (2). Older batches count for the core's other slots. Batches with an
   epoch that the core hasn't reached wait. So no message passes another one that is still under way.
4. What the former owner accepted is committed, and so are its marks; the new owner reads them before it takes anything.
   What the former owner didn't commit it never will: the slot is fenced.
5. A core accepts with its `view`, the epoch at which its slots last changed. A batch under an older epoch may have
   missed a slot, so its acceptance doesn't count. When this node has reached that view it renews the lane (2). So a
   message that is accepted was taken for every slot that the core had.
6. A slot may be *stuck*: its owner can't commit what it has for it, or hasn't loaded its sessions. The core then
   accepts batches but for such slots, and names the first batch that has something for each. Messages for them stay in
   their batches, in order. A core takes the messages of a slot in order, so it never commits a later number of a source
   before a lower one. Where much is stuck publishers to these slots pause. What they sent before (up to
   COURIER_STUCK_MAX_BYTES) takes no room from what is under way for others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, cast

from flockmq import bounds
from flockmq.delivery.batch_queue import MESSAGE_BYTES, BatchQueue, Carrier, Posted
from flockmq.delivery.slot_back_pressure import SlotLeases
from flockmq.delivery.slot_message import SlotMessage
from flockmq.membership.slot_table import SlotMove, SlotTable
from flockmq.mqtt.message import NO_EXPIRY, Publish
from flockmq.routing.message_id import node_source, number_of, source_of
from flockmq.routing.sink import FLOWING, Sink
from flockmq.routing.slots import grows_old, slot_of
from flockmq.routing.targets import SlotDispatcher, SlotSet

PARKED: Final = ""


class SlotSender(SlotDispatcher):
    """One per node. `find_carrier` gives the link to a core, if there is one. `on_drained` is told which lane or slot
    flows again, `on_congested` that one doesn't.
    """

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
        """Messages, while it is short."""
        self.source = node_source(me)
        self._turn = turn
        self._find_carrier = find_carrier
        self._on_drained = on_drained
        self._on_congested = on_congested
        self._now_s = now_s
        self._lanes: dict[str, BatchQueue] = {}
        self.leases: Final = SlotLeases(turn, self._flow_changed, now_s)
        self._table = table
        self._owners: list[str] = table.owners
        self._views = 0
        self._last_number = 0
        self._last_order = 0
        self._last_batch = 0
        """Of all lanes that were there."""
        self._gone: dict[str, None] = {}
        self._dropped_bytes = 0
        self._lane(PARKED)

    # --- for the router ---------------------------------------------------------------------------------------------

    def put_run(self, slots: SlotSet, version: int, chunk: bytes, publisher: bytes) -> None:
        run = SlotMessage(b"", 0, publisher, version, chunk)
        for lane in self._lanes_of(slots):
            lane.post_run(run)

    def takes(self, slots: SlotSet, message: Publish, *, can_be_refused: bool = True) -> bool:
        if self.is_short and not self.leases.may_put(slots.numbers, message.topic, can_be_refused):
            self.refused += 1
            return False
        return self._have_room(slots, message)

    def _have_room(self, slots: SlotSet, message: Publish) -> bool:
        size = MESSAGE_BYTES + len(message.publisher) + len(message.packet)
        return all(lane.takes(size) for lane in self._lanes_of(slots))

    def put_acknowledged(self, slots: SlotSet, message: Publish, on_accepted: Callable[[], None]) -> int:
        if not self._have_room(slots, message):
            return -1
        if message.origin:
            source, number = source_of(message.origin), number_of(message.origin)
        else:
            source, number = self.source, self._next_number()
        since_s = self._now_s() if message.expiry_s != NO_EXPIRY and message.version == 5 else 0.0
        order = self._next_order()
        posted = Posted(
            source,
            number,
            message.publisher,
            message.version,
            message.packet,
            slots.numbers,
            order,
            on_accepted,
            since_s,
        )
        for lane in self._lanes_of(slots):
            lane.post(posted)
        return 1

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _next_order(self) -> int:
        self._last_order += 1
        return self._last_order

    def slow_lanes(self, slots: SlotSet, publisher: bytes) -> list[Sink]:
        slow: list[Sink] = [lane for lane in self._lanes_of(slots) if lane.flow != FLOWING]
        congested = self.leases.congested
        if congested:
            own = slot_of(publisher)
            slow += [congested[slot] for slot in slots.numbers if slot in congested and slot != own]
        return slow

    def way_to(self, slot: int, publisher: bytes) -> Sink:
        congested = self.leases.congested.get(slot)
        return self._lane_to(slot) if congested is None or slot == slot_of(publisher) else congested

    def _lane_to(self, slot: int) -> BatchQueue:
        return self._lane(self._owners[slot])

    def put_shared_run(self, slot: int, version: int, chunk: bytes) -> None:
        self._lane_to(slot).post_run(SlotMessage(b"", 0, b"", version, chunk))

    def takes_shared(self, slot: int, chunk_bytes: int) -> bool:
        if self.is_short and not self.leases.members_take(slot):
            return False
        return self._lane_to(slot).takes(MESSAGE_BYTES + chunk_bytes)

    def put_shared(
        self, slot: int, version: int, chunk: bytes, on_accepted: Callable[[], None], origin: bytes = b""
    ) -> bool:
        if not self.takes_shared(slot, len(chunk)):
            return False
        since_s = self._now_s() if grows_old(version) else 0.0
        if origin:
            source, number = source_of(origin), number_of(origin)
        else:
            source, number = self.source, self._next_number()
        order = self._next_order()
        self._lane_to(slot).post(Posted(source, number, b"", version, chunk, [slot], order, on_accepted, since_s))
        return True

    def _lanes_of(self, slots: SlotSet) -> list[BatchQueue]:
        """Kept with the slots until some slot moves."""
        if slots.lanes_view != self._views:
            slots.lanes = [self._lane(core) for core in self._owners_of(slots.numbers)]
            slots.lanes_view = self._views
        return cast("list[BatchQueue]", slots.lanes)

    def _owners_of(self, slots: list[int]) -> list[str]:
        return list(dict.fromkeys(self._owners[slot] for slot in slots))

    # --- what the log says ------------------------------------------------------------------------------------------

    def slots_moved(self, moves: list[SlotMove]) -> None:
        """These slots have other owners, at this place in the log."""
        self._views += 1
        moved: dict[str, None] = {}
        for _, former, owner in sorted(moves):
            moved[former] = moved[owner] = None
        moved.update(dict.fromkeys(self._reached()))
        self._renew(moved)
        self._forget_gone()

    def look(self) -> None:
        """At whom the log is now as far as they said."""
        if reached := self._reached():
            self._renew(reached)
            self._forget_gone()

    def _reached(self) -> list[str]:
        epoch: int = self._table.epoch
        return [core for core, lane in self._lanes.items() if lane.epoch < lane.view <= epoch]

    def gone(self, core: str) -> None:
        """The core was purged; its lane goes when it owns no slot any more."""
        self._gone[core] = None
        self._forget_gone()

    def is_behind(self) -> bool:
        """Some core answered with a view that isn't reached here yet."""
        return any(lane.epoch < lane.view for lane in self._lanes.values())

    def _renew(self, cores: Collection[str]) -> None:
        """See 2 above."""
        copies: list[Posted] = []
        for core in cores:
            copies += self._lane(core).renew(self._table.epoch)
        for message in sorted(dict.fromkeys(copies), key=_order):
            for core in self._owners_of(message.slots):
                if core in cores:
                    self._lanes[core].post(message)
        for core in cores:
            self._lanes[core].send()
            self._lanes[core].gauge()
        self._release(copies)

    def _lane(self, core: str) -> BatchQueue:
        lane = self._lanes.get(core)
        if lane is None:
            after = self._last_batch  # a core that is back knows the number that it had last
            epoch = self._table.epoch
            lane = self._lanes[core] = BatchQueue(self._turn, core, epoch, self._flow_changed, self._now_s, after)
            if core != PARKED:
                lane.carrier = self._find_carrier(core)
        return lane

    def _forget_gone(self) -> None:
        for core in [core for core in self._gone if core not in self._owners]:
            del self._gone[core]
            if (lane := self._lanes.pop(core, None)) is not None:
                self._dropped_bytes += lane.dropped_bytes
                self._last_batch = max(self._last_batch, lane.last_number)
                lane.disconnected()  # nothing is in it, but its link may be full: whoever was paused for it goes on

    # --- links ------------------------------------------------------------------------------------------------------

    def carrier_of(self, core: str) -> Carrier | None:
        lane = self._lanes.get(core)
        return None if lane is None else lane.carrier

    def linked(self, core: str, carrier: Carrier) -> None:
        if (lane := self._lanes.get(core)) is not None:
            lane.connected(carrier)

    def unlinked(self, core: str) -> None:
        if (lane := self._lanes.get(core)) is not None:
            lane.disconnected()

    def accepted(self, core: str, number: int, view: int, stuck: dict[int, int]) -> None:
        """The core has committed all batches of this node up to `number`, for all slots that it had since `view`, but
        for messages for slots that are `stuck`, from the batch on that is named.
        """
        lane = self._lanes.get(core)
        if lane is None:
            return
        released = lane.accepted(number, view, stuck)
        self._congest_stuck(lane)
        lane.send()
        lane.gauge()
        self._release(released)

    def _release(self, messages: list[Posted]) -> None:
        """One copy less of each; where it was the last, whoever waits is told, which may put more."""
        through: list[Posted] = []
        for message in messages:
            message.copies -= 1
            if message.copies == 0:
                through.append(message)
        for message in through:
            message.on_accepted()

    # --- how it flows -----------------------------------------------------------------------------------------------

    def _congest_stuck(self, lane: BatchQueue) -> None:
        """Before what is stuck fills the window."""
        if lane.stuck_bytes > bounds.COURIER_STUCK_BYTES:
            for slot in lane.stuck:
                self.leases.congest(slot, True)

    def redis_is_short(self, is_short: bool) -> None:
        self.is_short = is_short
        self.leases.redis_is_short(is_short)

    def gauge(self) -> None:
        """Look at links that were congested, and at slots of which nothing was heard any more."""
        for lane in list(self._lanes.values()):
            if lane.flow != FLOWING:
                lane.gauge()
            if lane.stuck:
                self._congest_stuck(lane)
        self.leases.look()

    def _flow_changed(self, sink: Sink) -> None:
        """Of a lane, or a slot."""
        if sink.flow == FLOWING:
            self.congested -= 1
            self._on_drained(sink)
        else:
            self.congested += 1
            self._on_congested()

    @property
    def waiting_messages(self) -> int:
        """QoS ≥ 1 messages that some owner has not accepted, a copy for each owner."""
        return sum(lane.messages for lane in self._lanes.values())

    @property
    def waiting_bytes(self) -> int:
        return sum(lane.size_bytes for lane in self._lanes.values())

    @property
    def stuck_bytes(self) -> int:
        """Those among them that some owner has and can't commit."""
        return sum(lane.stuck_bytes for lane in self._lanes.values())

    @property
    def parked_messages(self) -> int:
        """Those among them whose slots have no owner."""
        return self._lanes[PARKED].messages

    @property
    def dropped_bytes(self) -> int:
        """QoS 0 messages that found no way, or a congested one."""
        return self._dropped_bytes + sum(lane.dropped_bytes for lane in self._lanes.values())


def _order(message: Posted) -> int:
    return message.order
