"""Messages on their way to the homes of sessions that last: a lane for each core that owns slots, one for slots without
an owner (parked, core ""). Pure: links, owners and the place in the log are passed in.

A letter is put once, into the lanes of the cores that own its slots, and its publisher is told when each core has it
durable at all of its slots. What always holds:
- What is not accepted stays; nobody is told without.
- A home sees the letters of a source for a slot in the order of their numbers, but for repeats, which it knows by its
  mark: the last number that it took from that source for that slot.

Why. Let `epoch` be the place in the log of slots that a lane's letters were put under; every batch says it.
1. A lane is a queue. Its batches are numbered, only ever upwards, and go in that order; after a lost link all that were
   not accepted go again from the first on. The core takes none twice. So within a lane nothing is passed.
2. A lane's epoch changes only in `_renew`: when the owners changed, all letters that are not accepted in any lane that
   lost or gained slots are taken out and put again, in the order in which they first were, to those among these lanes
   that own their slots now, under the new epoch, before anything newer is put. So whatever is in a lane under an epoch
   comes behind all that is older, unaccepted, and meant for the same slots.
3. The core gained slot N at g. It takes letters for N only from batches whose epoch is ≥ g: put by a sender that knew,
   hence behind those that were put again when it learnt of it (2). Batches under older epochs count for other slots.
   It holds batches whose epoch is ahead of what it knows itself. So it passes no letter for N that is still under way.
4. What the former owner accepted is durable, and so are its marks, which the new owner reads before it takes anything.
   What the former owner has not made durable, it never will: the slot is fenced.
5. The core accepts with its `view`, the epoch at which its slots last changed. A batch under an older epoch may have
   missed a slot: its acceptance means nothing, and once this node's own epoch has reached that view the lane is renewed
   (2). So a letter that was accepted was taken for every slot that the core had.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast

from flockmq import bounds
from flockmq.session.letter import Letter
from flockmq.session.origin import node_source, number_of, source_of
from flockmq.session.publish import NO_EXPIRY, Publish
from flockmq.session.sink import CONGESTED, FLOWING, Courier, Sink
from flockmq.session.slotted import aged_letter, grows_old, slot_of

if TYPE_CHECKING:
    from flockmq.session.fanout import Fanout

PARKED: Final = ""
LETTER_BYTES: Final = 23
"""What a letter takes in a frame beside its publisher's client id and its packet."""
PACKET_MAX_BYTES: Final = bounds.LINK_FRAME_MAX_BYTES - 128 * 1024
"""A run beyond it has no frame it fits into."""


class Carrier(Protocol):
    """What brings batches to one core: a link, or, where that is this node, a call."""

    @property
    def data_bytes(self) -> int:
        """What waits on it."""
        ...

    def send(self, number: int, epoch: int, letters: Sequence[Letter], size_bytes: int) -> None:
        """One batch, or, of number 0, runs of QoS 0 packets."""
        ...


class Posted(Letter):
    """A letter at its sender: for `slots`, in `copies` lanes, and who is told when they are accepted. `since_s`: since
    when its Message Expiry Interval, as the packet says it, runs; 0.0: it has none.
    """

    __slots__ = ("copies", "on_accepted", "order", "since_s", "slots")

    def __init__(
        self,
        letter: Letter,
        slots: list[int],
        order: int,
        on_accepted: Callable[[], None],
        since_s: float,
    ) -> None:
        super().__init__(letter.source, letter.number, letter.publisher, letter.version, letter.packet)
        self.since_s = since_s
        self.slots = slots
        self.order = order
        self.on_accepted = on_accepted
        self.copies = 0

    def age(self, now_s: float) -> None:
        """It waited here: the packet says what is left of its expiry [MQTT-3.3.2-6]. One that has expired goes all the
        same, for the numbers' sake; its home gives it to nobody.
        """
        waited_s = int(now_s - self.since_s)
        if waited_s > 0:
            self.packet = aged_letter(self.version, self.packet, waited_s)
            self.since_s += waited_s


class Batch:
    """Letters that go in one frame, under one number."""

    __slots__ = ("epoch", "letters", "number", "size_bytes")

    def __init__(self, number: int, epoch: int, letters: list[Posted], size_bytes: int) -> None:
        self.number = number
        self.epoch = epoch
        self.letters = letters
        self.size_bytes = size_bytes

    def give(self, carrier: Carrier, now_s: float) -> None:
        for letter in self.letters:
            if letter.since_s:
                letter.age(now_s)
        carrier.send(self.number, self.epoch, self.letters, self.size_bytes)


def size_of(letter: Letter) -> int:
    return LETTER_BYTES + len(letter.publisher) + len(letter.packet)


class Lane(Sink):
    """The way to one core. `flow` is CONGESTED while its link is, or half of what it holds at most waits."""

    def __init__(
        self, turn: list[Sink], core: str, epoch: int, on_flow: Callable[[Lane], None], now_s: Callable[[], float]
    ) -> None:
        super().__init__(turn, 5)
        self.core: Final = core
        self.epoch = epoch
        self.view = 0
        """The highest that the core said."""
        self.carrier: Carrier | None = None
        self.size_bytes = 0
        self.messages = 0
        self.dropped_bytes = 0
        """Of QoS 0 runs."""
        self._on_flow = on_flow
        self._now_s = now_s
        self._waiting: deque[Posted] = deque()
        self._under_way: deque[Batch] = deque()
        self._under_way_bytes = 0
        self._runs: list[Letter] = []
        self._last_number = 0

    def takes(self, packet_bytes: int) -> bool:
        return (
            self.size_bytes + packet_bytes <= bounds.COURIER_LANE_MAX_BYTES
            and self.messages < bounds.COURIER_LANE_MAX_MESSAGES
        )

    def post(self, letter: Posted) -> None:
        letter.copies += 1
        self._waiting.append(letter)
        self.size_bytes += size_of(letter)
        self.messages += 1
        self._soil()

    def post_run(self, run: Letter) -> None:
        """QoS 0: goes with this turn or not at all."""
        self._runs.append(run)
        self._soil()

    def _soil(self) -> None:
        if not self.dirty:
            self.dirty = True
            self.turn.append(self)

    def flush(self) -> None:
        """Hand this turn's messages to the link, within the window; without one letters wait and runs are dropped."""
        self.dirty = False
        self.send()
        if self._runs:
            self._send_runs()
        self.gauge()

    def send(self) -> None:
        carrier = self.carrier
        while carrier is not None and self._waiting and self._under_way_bytes < bounds.COURIER_WINDOW_BYTES:
            batch = self._cut()
            self._under_way.append(batch)
            self._under_way_bytes += batch.size_bytes
            batch.give(carrier, self._now_s())

    def _cut(self) -> Batch:
        """The next letters, as many as one frame should have."""
        waiting = self._waiting
        letters = [waiting.popleft()]
        size = size_of(letters[0])
        while waiting and size + size_of(waiting[0]) <= bounds.LINK_FORWARD_FRAME_BYTES:
            letter = waiting.popleft()
            letters.append(letter)
            size += size_of(letter)
        self._last_number += 1
        return Batch(self._last_number, self.epoch, letters, size)

    def _send_runs(self) -> None:
        runs, self._runs = self._runs, []
        carrier = self.carrier
        if carrier is None or self.flow != FLOWING:
            self.dropped_bytes += sum(len(run.packet) for run in runs)
            return
        frame: list[Letter] = []
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

    def accepted(self, number: int, view: int) -> list[Posted]:
        """The core has the batches up to `number`, as far as it knew their epochs: the letters that are through."""
        self.view = max(self.view, view)
        released: list[Posted] = []
        under_way = self._under_way
        while under_way and under_way[0].number <= number and under_way[0].epoch >= view:
            batch = under_way.popleft()
            self._under_way_bytes -= batch.size_bytes
            self.size_bytes -= batch.size_bytes
            self.messages -= len(batch.letters)
            released += batch.letters
        return released

    def renew(self, epoch: int) -> list[Posted]:
        """The letters that were not accepted, which are put again; what comes from now on was put under `epoch`."""
        letters = [letter for batch in self._under_way for letter in batch.letters]
        letters.extend(self._waiting)
        self._under_way.clear()
        self._waiting.clear()
        self._under_way_bytes = self.size_bytes = self.messages = 0
        self.epoch = epoch
        return letters

    def gauge(self) -> None:
        """Does it flow?"""
        waits_bytes = 0 if self.carrier is None else self.carrier.data_bytes
        fill = max(self.size_bytes / bounds.COURIER_LANE_MAX_BYTES, self.messages / bounds.COURIER_LANE_MAX_MESSAGES)
        if self.flow == FLOWING:
            if waits_bytes > bounds.PEER_BLOCKED_BYTES or fill > 0.5:
                self.flow = CONGESTED
                self._on_flow(self)
        elif waits_bytes < bounds.PEER_DRAINED_BYTES and fill < 0.25:
            self.flow = FLOWING
            self._on_flow(self)


class Crowd(Sink):
    """A slot in which more waits for a session than that takes, until its home was silent for too long."""

    def __init__(self, turn: list[Sink], until_s: float) -> None:
        super().__init__(turn, 5)
        self.flow = CONGESTED
        self.until_s = until_s


class Lanes(Courier):
    """The courier of one node. `find_carrier` gives the link to a core, if there is one; `on_drained` is told which
    lane flows again, `on_congested` that one doesn't.
    """

    def __init__(
        self,
        turn: list[Sink],
        me: str,
        find_carrier: Callable[[str], Carrier | None],
        on_drained: Callable[[Sink], None],
        on_congested: Callable[[], None],
        now_s: Callable[[], float],
    ) -> None:
        super().__init__()
        self.source = node_source(me)
        self.epoch = 0
        self._turn = turn
        self._find_carrier = find_carrier
        self._on_drained = on_drained
        self._on_congested = on_congested
        self._now_s = now_s
        self._lanes: dict[str, Lane] = {}
        self._crowds: dict[int, Crowd] = {}
        self._owners = [PARKED] * bounds.SLOTS
        self._views = 0
        self._last_number = 0
        self._last_order = 0
        self._gone: set[str] = set()
        self._dropped_bytes = 0
        self._lane(PARKED)

    # --- for the router ---------------------------------------------------------------------------------------------

    def put_run(self, fan: Fanout, version: int, chunk: bytes, publisher: bytes) -> None:
        run = Letter(b"", 0, publisher, version, chunk)
        for lane in self._lanes_of(fan):
            lane.post_run(run)

    def takes(self, fan: Fanout, message: Publish) -> bool:
        size = LETTER_BYTES + len(message.publisher) + len(message.packet)
        return all(lane.takes(size) for lane in self._lanes_of(fan))

    def put_acknowledged(self, fan: Fanout, message: Publish, on_accepted: Callable[[], None]) -> int:
        if not self.takes(fan, message):
            return -1
        if message.origin:
            source, number = source_of(message.origin), number_of(message.origin)
        else:
            source, number = self.source, self._next_number()
        letter = Letter(source, number, message.publisher, message.version, message.packet)
        since_s = self._now_s() if message.expiry_s != NO_EXPIRY and message.version == 5 else 0.0
        self._post(letter, fan.slots, self._lanes_of(fan), on_accepted, since_s)
        return 1

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _post(
        self,
        letter: Letter,
        slots: list[int],
        lanes: list[Lane],
        on_accepted: Callable[[], None],
        since_s: float,
    ) -> None:
        self._last_order += 1
        posted = Posted(letter, slots, self._last_order, on_accepted, since_s)
        for lane in lanes:
            lane.post(posted)

    def slow_lanes(self, fan: Fanout, publisher: bytes) -> list[Sink]:
        slow: list[Sink] = [lane for lane in self._lanes_of(fan) if lane.flow != FLOWING]
        if self._crowds:
            own = slot_of(publisher)
            slow += [self._crowds[slot] for slot in fan.slots if slot in self._crowds and slot != own]
        return slow

    def lane_to(self, slot: int) -> Lane:
        return self._lane(self._owners[slot])

    def put_shared_run(self, slot: int, version: int, chunk: bytes) -> None:
        self.lane_to(slot).post_run(Letter(b"", 0, b"", version, chunk))

    def put_shared(self, slot: int, version: int, chunk: bytes, on_accepted: Callable[[], None]) -> bool:
        lane = self.lane_to(slot)
        if not lane.takes(LETTER_BYTES + len(chunk)):
            return False
        letter = Letter(self.source, self._next_number(), b"", version, chunk)
        self._post(letter, [slot], [lane], on_accepted, self._now_s() if grows_old(version) else 0.0)
        return True

    def _lanes_of(self, fan: Fanout) -> list[Lane]:
        """Kept with the fan-out until some slot moves."""
        if fan.lanes_view != self._views:
            fan.lanes = [self._lane(core) for core in self._owners_of(fan.slots)]
            fan.lanes_view = self._views
        return cast("list[Lane]", fan.lanes)

    def _owners_of(self, slots: list[int]) -> list[str]:
        return list(dict.fromkeys(self._owners[slot] for slot in slots))

    # --- what the log says ------------------------------------------------------------------------------------------

    def look(self, epoch: int, owners: Mapping[int, str]) -> None:
        """Who owns which slot at this place in the log."""
        moved: set[str] = set()
        for slot, was in enumerate(self._owners):
            now = owners.get(slot, PARKED)
            if now != was:
                moved.update((was, now))
                self._owners[slot] = now
        self.epoch = epoch
        if moved:
            self._views += 1
        moved.update(core for core, lane in self._lanes.items() if lane.epoch < lane.view <= epoch)
        if moved:
            self._renew(moved)
            self._forget_gone()

    def gone(self, core: str) -> None:
        """The core was purged; its lane goes when it owns no slot any more."""
        self._gone.add(core)
        self._forget_gone()

    def is_behind(self) -> bool:
        """Some core answered with a view that isn't reached here yet."""
        return any(lane.epoch < lane.view for lane in self._lanes.values())

    def _renew(self, cores: Collection[str]) -> None:
        """See 2 above."""
        copies: list[Posted] = []
        for core in cores:
            copies += self._lane(core).renew(self.epoch)
        for letter in sorted(dict.fromkeys(copies), key=_order):
            for core in self._owners_of(letter.slots):
                if core in cores:
                    self._lanes[core].post(letter)
        for core in cores:
            self._lanes[core].send()
            self._lanes[core].gauge()
        self._release(copies)

    def _lane(self, core: str) -> Lane:
        lane = self._lanes.get(core)
        if lane is None:
            lane = self._lanes[core] = Lane(self._turn, core, self.epoch, self._flow_changed, self._now_s)
            if core != PARKED:
                lane.carrier = self._find_carrier(core)
        return lane

    def _forget_gone(self) -> None:
        for core in self._gone.difference(self._owners):
            self._gone.discard(core)
            if (lane := self._lanes.pop(core, None)) is not None:
                self._dropped_bytes += lane.dropped_bytes
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

    def accepted(self, core: str, number: int, view: int) -> None:
        """The core has all batches of this node up to `number`, durable at all slots that it had since `view`."""
        lane = self._lanes.get(core)
        if lane is None:
            return
        released = lane.accepted(number, view)
        lane.send()
        lane.gauge()
        self._release(released)

    def _release(self, letters: list[Posted]) -> None:
        """One copy less of each; where it was the last, whoever waits is told, which may put more."""
        through: list[Posted] = []
        for letter in letters:
            letter.copies -= 1
            if letter.copies == 0:
                through.append(letter)
        for letter in through:
            letter.on_accepted()

    # --- how it flows -----------------------------------------------------------------------------------------------

    def crowd(self, slot: int, is_crowded: bool) -> None:
        """What the slot's home says, again and again while it is."""
        crowd = self._crowds.get(slot)
        if not is_crowded:
            self._dispersed(slot)
        elif crowd is not None:
            crowd.until_s = self._now_s() + bounds.CROWDED_KEPT_S
        else:
            self._crowds[slot] = Crowd(self._turn, self._now_s() + bounds.CROWDED_KEPT_S)
            self.congested += 1
            self._on_congested()

    def _dispersed(self, slot: int) -> None:
        crowd = self._crowds.pop(slot, None)
        if crowd is not None:
            self.congested -= 1
            self._on_drained(crowd)

    def gauge(self) -> None:
        """Look at links that were congested, and at slots of which nothing was heard any more."""
        for lane in list(self._lanes.values()):
            if lane.flow != FLOWING:
                lane.gauge()
        now_s = self._now_s()
        for slot in [slot for slot, crowd in self._crowds.items() if crowd.until_s <= now_s]:
            self._dispersed(slot)

    def _flow_changed(self, lane: Lane) -> None:
        if lane.flow == FLOWING:
            self.congested -= 1
            self._on_drained(lane)
        else:
            self.congested += 1
            self._on_congested()

    @property
    def crowded_slots(self) -> int:
        return len(self._crowds)

    @property
    def waiting_messages(self) -> int:
        """QoS ≥ 1 messages that some home has not accepted, a copy for each."""
        return sum(lane.messages for lane in self._lanes.values())

    @property
    def waiting_bytes(self) -> int:
        return sum(lane.size_bytes for lane in self._lanes.values())

    @property
    def parked_messages(self) -> int:
        """Those among them whose slots have no owner."""
        return self._lanes[PARKED].messages

    @property
    def dropped_bytes(self) -> int:
        """QoS 0 messages that found no way, or a congested one."""
        return self._dropped_bytes + sum(lane.dropped_bytes for lane in self._lanes.values())


def _order(letter: Posted) -> int:
    return letter.order
