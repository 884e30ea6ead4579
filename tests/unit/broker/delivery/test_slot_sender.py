"""Lanes by themselves: what they bound, when they are congested, and what becomes of QoS 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from flockmq import bounds
from flockmq.delivery.batch_queue import size_of
from flockmq.delivery.slot_sender import SlotSender
from flockmq.membership.slot_table import SEND, SlotTable
from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.message import Publish, parse_publish, publication
from flockmq.rlog.entry import StreamId
from flockmq.routing.message_id import origin_of, session_source
from flockmq.routing.shared_frames import SHARED, unwrap, wrap
from flockmq.routing.sink import CONGESTED, FLOWING, Sink
from flockmq.routing.slots import SlotMessage, SlotPeers, addressed, slot_of
from flockmq.routing.targets import SlotSet


class Wire:
    def __init__(self) -> None:
        self.data_bytes = 0
        self.batches: list[tuple[int, int, list[SlotMessage]]] = []

    def send(self, number: int, epoch: int, letters: Sequence[SlotMessage], size_bytes: int) -> None:
        assert size_bytes == sum(map(size_of, letters))
        self.batches.append((number, epoch, list(letters)))

    def take(self) -> list[tuple[int, int, list[bytes]]]:
        taken = [(number, epoch, [letter.packet for letter in letters]) for number, epoch, letters in self.batches]
        self.batches.clear()
        return taken


class Sender:
    """Slots 0 and 1 are a's, slot 2 is b's, slot 3 is nobody's."""

    def __init__(self) -> None:
        self.turn: list[Sink] = []
        self.wires = {"a@1": Wire(), "b@1": Wire()}
        self.drained: list[Sink] = []
        self.accepted: list[int] = []
        self.now_s = 100.0
        self.table = SlotTable()
        self.lanes = SlotSender(
            self.turn, "r@1", self.table, self.wires.get, self.drained.append, lambda: None, lambda: self.now_s
        )
        self.table.listen(SEND, self.lanes.slots_moved)
        self.owners = {0: "a@1", 1: "a@1", 2: "b@1"}
        self.log_says(7, self.owners)

    def log_says(self, epoch: int, owners: dict[int, str]) -> None:
        """Of all slots."""
        fresh = self.table.fresh()
        for slot, owner in owners.items():
            fresh.put(slot, owner, None)
        self.table.swap(fresh)
        self.table.entry_applied(StreamId(0, epoch))
        self.lanes.look()

    def put(self, number: int, *slots: int, size: int = 0, origin: bytes = b"") -> SlotSet:
        wanted = SlotSet(list(slots))
        assert self.lanes.put_acknowledged(wanted, message(number, size, origin), self.told(number)) == 1
        return wanted

    def told(self, number: int) -> Callable[[], None]:
        return lambda: self.accepted.append(number)

    def end_turn(self) -> None:
        for sink in self.turn:
            sink.flush()
        self.turn.clear()


def message(number: int, size: int = 0, origin: bytes = b"") -> Publish:
    publish = publication(4, 1, False, b"t", b"%d" % number + bytes(size), b"")
    publish.origin = origin
    return publish


def expiring(expiry_s: int) -> Publish:
    return publication(5, 1, False, b"t", b"", b"\x02" + expiry_s.to_bytes(4, "big"), expiry_s)


def left_s(packet: bytes) -> int:
    _, body = remaining_length(packet, 1, 5)
    return parse_publish(packet, 0, body, len(packet), 5).expiry_s


def packets(*numbers: int) -> list[bytes]:
    return [message(number).packet for number in numbers]


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_a_message_goes_once_to_each_core_and_is_through_when_all_have_it(sender: Sender) -> None:
    sender.put(1, 0, 1, 2)
    sender.put(2, 1)
    sender.end_turn()
    assert sender.wires["a@1"].take() == [(1, 7, packets(1, 2))]
    assert sender.wires["b@1"].take() == [(1, 7, packets(1))]
    sender.lanes.accepted("a@1", 1, 7, {})
    assert sender.accepted == [2]
    sender.lanes.accepted("b@1", 1, 5, {})
    assert sender.accepted == [2, 1]
    assert (sender.lanes.waiting_messages, sender.lanes.waiting_bytes) == (0, 0)


def test_messages_are_numbered_by_this_node_or_have_their_origin(sender: Sender) -> None:
    origin = origin_of(session_source(bytes(8)), 9)
    for number in (1, 2):
        sender.put(number, 0)
    sender.put(3, 0, origin=origin)
    sender.put(4, 0)
    sender.end_turn()
    letters = sender.wires["a@1"].batches[0][2]
    me = sender.lanes.source
    ids = [(letter.source, letter.number) for letter in letters]
    assert ids == [(me, 1), (me, 2), (session_source(bytes(8)), 9), (me, 3)]


def test_the_expiry_of_a_message_runs_while_it_waits(sender: Sender) -> None:
    slots = SlotSet([3])
    for expiry_s in (60, 5):
        sender.lanes.put_acknowledged(slots, expiring(expiry_s), sender.told(expiry_s))
    sender.now_s += 9.5
    sender.log_says(9, {**sender.owners, 3: "b@1"})
    [(_, _, parked)] = sender.wires["b@1"].take()
    assert [left_s(packet) for packet in parked] == [51, 0]
    sender.now_s += 0.5
    sender.lanes.linked("b@1", sender.wires["b@1"])
    [(_, _, again)] = sender.wires["b@1"].take()
    assert [left_s(packet) for packet in again] == [50, 0], "no second is counted twice, none is lost"


def test_what_one_core_has_does_not_grow_old_by_what_it_waits_for_another(sender: Sender) -> None:
    """The core may be this node: its home has the letter itself, and counts by itself for how long."""
    sender.lanes.put_acknowledged(SlotSet([0, 2]), expiring(60), sender.told(1))
    sender.lanes.unlinked("b@1")
    sender.end_turn()
    [(_, _, [letter])] = sender.wires["a@1"].batches
    sender.now_s += 25
    sender.lanes.linked("b@1", sender.wires["b@1"])
    assert [left_s(packet) for _, _, packets in sender.wires["b@1"].take() for packet in packets] == [35]
    assert left_s(letter.packet) == 60


def test_what_has_no_owner_waits_for_one(sender: Sender) -> None:
    sender.put(1, 3)
    sender.put(2, 2, 3)
    sender.end_turn()
    assert sender.lanes.unassigned_messages == 2
    sender.wires["b@1"].take()
    sender.lanes.accepted("b@1", 1, 7, {})
    sender.log_says(9, {**sender.owners, 3: "b@1"})
    assert sender.lanes.unassigned_messages == 0
    assert sender.wires["b@1"].take() == [(2, 9, packets(1, 2))]
    assert sender.accepted == []
    sender.lanes.accepted("b@1", 2, 9, {})
    assert sender.accepted == [1, 2]


def test_a_shared_delivery_goes_to_the_one_slot_wherever_it_moves(sender: Sender) -> None:
    lanes = sender.lanes
    assert lanes.put_shared(3, 4 | SHARED, b"dealt", sender.told(1))
    sender.put(2, 1)
    sender.end_turn()
    assert sender.wires["a@1"].take() == [(1, 7, packets(2))]
    sender.log_says(8, sender.owners | {3: "b@1"})
    ((_, epoch, (letter,)),) = sender.wires["b@1"].batches
    assert (epoch, letter.source, letter.number, letter.version, letter.packet) == (
        8, lanes.source, 1, 4 | SHARED, b"dealt",
    )  # fmt: skip
    assert sender.accepted == []
    lanes.accepted("b@1", 1, 8, {})
    assert sender.accepted == [1]
    assert lanes.way_to(3, b"") is lanes.way_to(2, b"")


def test_a_shared_delivery_that_has_an_id_goes_under_that(sender: Sender) -> None:
    origin = origin_of(session_source(b"12345678"), 5)
    for _ in range(2):
        assert SlotPeers([], sender.lanes).peer(1).put_once(4 | SHARED, origin, b"dealt", sender.told(1))
    sender.end_turn()
    letters = [letter for _, _, batch in sender.wires["a@1"].batches for letter in batch]
    assert [(letter.source + letter.number.to_bytes(8, "big"), letter.version) for letter in letters] == [
        (origin, 4 | SHARED),
        (origin, 4 | SHARED),
    ]
    assert [addressed(letter.packet) for letter in letters] == [(1, b"dealt")] * 2


def test_the_expiry_of_a_shared_delivery_runs_while_it_waits(sender: Sender) -> None:
    item = wrap(b"$share/g/t", 1, 0, expiring(60).packet)
    assert sender.lanes.put_shared(3, 5 | SHARED, b"\0\3" + item, sender.told(1))
    sender.now_s += 20.5
    sender.log_says(8, sender.owners | {3: "b@1"})
    ((_, _, (letter,)),) = sender.wires["b@1"].batches
    for waited_s in (0, 15):
        slot, chunk = addressed(letter.aged(waited_s).packet)
        (sent,) = unwrap(chunk)
        assert (slot, sent.filter, left_s(sent.run)) == (3, b"$share/g/t", 40 - waited_s)


def test_a_shared_delivery_finds_no_room_in_a_full_lane(sender: Sender) -> None:
    chunk = bytes(bounds.SLOT_QUEUE_MAX_BYTES * 3 // 5)
    assert sender.lanes.put_shared(0, 4 | SHARED, chunk, sender.told(1))
    peers = SlotPeers([], sender.lanes)
    assert peers.peer(1).takes(60)
    assert not peers.peer(1).takes(len(chunk))
    assert not sender.lanes.put_shared(1, 4 | SHARED, chunk, sender.told(2))
    assert sender.lanes.put_shared(2, 4 | SHARED, bytes(60), sender.told(3))


def test_a_shared_run_goes_to_the_one_slot_or_is_dropped(sender: Sender) -> None:
    sender.lanes.put_shared_run(2, 4 | SHARED, b"run")
    sender.lanes.put_shared_run(3, 4 | SHARED, b"lost")
    sender.end_turn()
    assert sender.wires["b@1"].take() == [(0, 7, [b"run"])]
    assert sender.lanes.dropped_bytes == 4


def test_a_core_that_goes_while_its_link_is_full_holds_nobody_up(sender: Sender) -> None:
    sender.wires["a@1"].data_bytes = bounds.PEER_BLOCKED_BYTES + 1
    slots = sender.put(1, 0)
    sender.end_turn()
    [paused] = sender.lanes.slow_queues(slots, b"p")
    sender.log_says(9, dict.fromkeys(range(3), "b@1"))
    sender.lanes.gone("a@1")
    sender.lanes.update_flow()
    assert sender.drained == [paused]
    assert sender.lanes.congested == 0


def test_a_lane_whose_slots_stay_is_left_alone(sender: Sender) -> None:
    sender.put(1, 0, 2)
    sender.end_turn()
    for wire in sender.wires.values():
        wire.take()
    sender.log_says(9, {**sender.owners, 3: "b@1"})
    assert sender.wires["a@1"].take() == []
    assert sender.wires["b@1"].take() == [(2, 9, packets(1))]
    sender.lanes.accepted("b@1", 1, 9, {})
    assert sender.lanes.waiting_messages == 2, "the batch it accepted was let go: the one that counts is the second"
    sender.lanes.accepted("b@1", 2, 9, {})
    sender.lanes.accepted("a@1", 1, 7, {})
    assert sender.accepted == [1]


def test_an_acceptance_under_a_later_view_counts_when_it_was_put_again(sender: Sender) -> None:
    sender.put(1, 0)
    sender.end_turn()
    sender.wires["a@1"].take()
    sender.lanes.accepted("a@1", 1, 12, {})
    assert (sender.accepted, sender.lanes.is_behind()) == ([], True)
    sender.log_says(11, sender.owners)
    assert sender.wires["a@1"].take() == [], "this node isn't there yet either"
    sender.log_says(12, sender.owners)
    assert sender.wires["a@1"].take() == [(2, 12, packets(1))]
    sender.lanes.accepted("a@1", 2, 12, {})
    assert (sender.accepted, sender.lanes.is_behind()) == ([1], False)


def test_no_more_than_the_window_is_under_way(sender: Sender) -> None:
    count = 3 * bounds.SLOT_WINDOW_BYTES // 100_000
    for number in range(count):
        sender.put(number, 0, size=100_000)
    sender.end_turn()
    wire = sender.wires["a@1"]
    went = sum(size_of(letter) for _, _, letters in wire.batches for letter in letters)
    assert 0 <= went - bounds.SLOT_WINDOW_BYTES < bounds.LINK_FORWARD_FRAME_BYTES
    while wire.batches:
        number = wire.batches[-1][0]
        wire.batches.clear()
        sender.lanes.accepted("a@1", number, 7, {})
    assert sender.accepted == list(range(count))


def test_after_a_lost_link_what_was_under_way_goes_again_under_its_numbers(sender: Sender) -> None:
    for number in (1, 2, 3):
        sender.put(number, 0)
        sender.end_turn()
    sender.lanes.accepted("a@1", 1, 7, {})
    sender.lanes.unlinked("a@1")
    sender.put(4, 0)
    sender.end_turn()
    again = Wire()
    sender.lanes.linked("a@1", again)
    assert again.take() == [(2, 7, packets(2)), (3, 7, packets(3)), (4, 7, packets(4))]


def test_a_full_lane_takes_nothing_and_long_before_it_is_congested(sender: Sender) -> None:
    size = 1_000_000
    slots = sender.put(0, 0, size=size)
    refused = 0
    for number in range(1, 100):
        refused += sender.lanes.put_acknowledged(slots, message(number, size), sender.told(number)) < 0
    assert refused > 0
    assert sender.lanes.waiting_bytes <= bounds.SLOT_QUEUE_MAX_BYTES
    both = SlotSet([0, 2])
    assert sender.lanes.put_acknowledged(both, message(1, size), sender.told(1)) == -1
    assert sender.lanes.waiting_messages == 100 - refused, "nothing was put to the other lane"
    assert (sender.lanes.congested, sender.lanes.slow_queues(both, b"p")) == (0, [])
    sender.end_turn()
    assert sender.lanes.congested == 1
    (slow,) = sender.lanes.slow_queues(both, b"p")
    while sender.wires["a@1"].batches:
        number = sender.wires["a@1"].batches[-1][0]
        sender.wires["a@1"].batches.clear()
        sender.lanes.accepted("a@1", number, 7, {})
    assert (sender.drained, sender.lanes.congested) == ([slow], 0)


def test_a_congested_link_congests_its_lane_until_it_drained(sender: Sender) -> None:
    wire = sender.wires["a@1"]
    wire.data_bytes = bounds.PEER_BLOCKED_BYTES + 1
    sender.put(1, 0)
    sender.end_turn()
    assert sender.lanes.congested == 1
    sender.lanes.update_flow()
    assert sender.drained == []
    wire.data_bytes = 0
    sender.lanes.update_flow()
    assert (len(sender.drained), sender.lanes.congested) == (1, 0)


def test_runs_go_to_each_core_without_a_number_or_are_dropped_and_counted(sender: Sender) -> None:
    slots = SlotSet([0, 1, 2, 3])
    sender.lanes.put_run(slots, 5, b"run", b"client")
    sender.end_turn()
    assert sender.wires["a@1"].take() == sender.wires["b@1"].take() == [(0, 7, [b"run"])]
    assert sender.lanes.dropped_bytes == 3, "slot 3 has no owner"
    sender.wires["a@1"].data_bytes = bounds.PEER_BLOCKED_BYTES + 1
    sender.put(1, 0)
    sender.end_turn()
    sender.wires["a@1"].take()
    sender.lanes.unlinked("b@1")
    sender.lanes.put_run(slots, 5, b"run", b"client")
    sender.end_turn()
    assert sender.wires["a@1"].take() == sender.wires["b@1"].take() == []
    assert sender.lanes.dropped_bytes == 12


def test_a_purged_core_is_forgotten_when_its_slots_went(sender: Sender) -> None:
    sender.put(1, 2)
    sender.end_turn()
    sender.lanes.gone("b@1")
    assert sender.lanes.carrier_of("b@1") is not None
    sender.log_says(9, {0: "a@1", 1: "a@1", 2: "a@1"})
    assert sender.lanes.carrier_of("b@1") is None
    assert sender.wires["a@1"].take() == [(1, 9, packets(1))]
    sender.lanes.accepted("b@1", 1, 7, {})
    assert sender.accepted == []


def test_a_core_that_was_gone_and_is_back_takes_none_for_a_repeat(sender: Sender) -> None:
    """Its row, and its slots, were away for a moment: it knows the number that it had last."""
    sender.put(1, 2)
    sender.put(2, 2)
    sender.end_turn()
    sender.lanes.accepted("b@1", 1, 7, {})
    sender.lanes.gone("b@1")
    sender.log_says(9, {0: "a@1", 1: "a@1"})
    sender.wires["b@1"].take()
    sender.log_says(10, sender.owners)
    sender.put(3, 2)
    sender.end_turn()
    assert sender.wires["b@1"].take()[-1] == (2, 10, packets(3))


def test_who_is_told_may_put_more(sender: Sender) -> None:
    slots = SlotSet([0])
    sender.lanes.put_acknowledged(slots, message(1), lambda: put_again(2))

    def put_again(number: int) -> None:
        sender.put(number, 0)

    sender.end_turn()
    sender.wires["a@1"].take()
    sender.lanes.accepted("a@1", 1, 7, {})
    sender.end_turn()
    assert sender.wires["a@1"].take() == [(2, 7, packets(2))]


# Slots in which more waits for a session than it takes.


def test_who_publishes_to_a_crowded_slot_pauses_until_its_home_says_that_it_is_none_any_more(sender: Sender) -> None:
    crowded, other = SlotSet([0, 2]), SlotSet([1])
    sender.lanes.back_pressure.congest(0, True)
    sender.lanes.back_pressure.congest(0, True)
    assert (sender.lanes.congested, len(sender.lanes.back_pressure.congested)) == (1, 1)
    [crowd] = sender.lanes.slow_queues(crowded, b"p")
    assert sender.lanes.slow_queues(other, b"p") == [], "of the same home"
    sender.lanes.back_pressure.congest(0, False)
    sender.lanes.back_pressure.congest(0, False)
    assert (sender.drained, sender.lanes.congested, sender.lanes.slow_queues(crowded, b"p")) == ([crowd], 0, [])


def test_what_a_shared_delivery_waits_for_is_its_slot_if_that_is_crowded_and_not_the_publishers_own(
    sender: Sender,
) -> None:
    own = next(b"%d" % number for number in range(99_999) if slot_of(b"%d" % number) == 2)
    lane = sender.lanes.way_to(2, b"p")
    sender.lanes.back_pressure.congest(2, True)
    crowd = sender.lanes.way_to(2, b"p")
    assert crowd is not lane
    assert (lane.flow, crowd.flow) == (FLOWING, CONGESTED)
    assert sender.lanes.way_to(2, own) is lane
    sender.lanes.back_pressure.congest(2, False)
    assert sender.lanes.way_to(2, b"p") is lane


def test_a_crowded_slot_of_which_nothing_is_heard_any_more_is_none(sender: Sender) -> None:
    sender.lanes.back_pressure.congest(0, True)
    sender.now_s += bounds.CONGESTED_KEPT_S / 2
    sender.lanes.back_pressure.congest(0, True)
    sender.now_s += bounds.CONGESTED_KEPT_S / 2
    sender.lanes.update_flow()
    assert (sender.drained, sender.lanes.congested) == ([], 1)
    sender.now_s += bounds.CONGESTED_KEPT_S / 2
    sender.lanes.update_flow()
    assert (len(sender.drained), sender.lanes.congested) == (1, 0)


def test_nobody_pauses_for_its_own_slot_where_its_own_acknowledgements_may_be_waited_for(sender: Sender) -> None:
    own = slot_of(b"p")
    sender.log_says(8, {own: "a@1", own + 1: "a@1"})
    sender.lanes.back_pressure.congest(own, True)
    slots = SlotSet([own])
    assert sender.lanes.slow_queues(slots, b"p") == []
    assert len(sender.lanes.slow_queues(slots, b"q")) == 1


def test_letters_for_a_slot_that_is_stuck_hold_up_none_for_others(sender: Sender) -> None:
    sender.put(1, 0)
    sender.put(2, 1)
    sender.end_turn()
    sender.put(3, 0, 1)
    sender.put(4, 1)
    sender.end_turn()
    sender.wires["a@1"].take()
    sender.lanes.accepted("a@1", 2, 7, {0: 1})
    assert sender.accepted == [2, 4]
    assert sender.lanes.waiting_messages == 2
    assert sender.lanes.blocked_bytes == sender.lanes.waiting_bytes
    sender.lanes.unlinked("a@1")
    sender.lanes.linked("a@1", sender.wires["a@1"])
    assert sender.wires["a@1"].take() == [(1, 7, packets(1)), (2, 7, packets(3))], "those that aren't durable"
    sender.lanes.accepted("a@1", 2, 7, {0: 2})
    assert sender.accepted == [2, 4, 1]
    sender.put(5, 0)
    sender.end_turn()
    sender.lanes.accepted("a@1", 3, 7, {})
    assert sender.accepted == [2, 4, 1, 3, 5]
    assert (sender.lanes.waiting_messages, sender.lanes.waiting_bytes, sender.lanes.blocked_bytes) == (0, 0, 0)


def test_what_is_stuck_goes_again_in_its_order_when_its_slot_moves(sender: Sender) -> None:
    sender.put(1, 0)
    sender.end_turn()
    sender.put(2, 1)
    sender.end_turn()
    sender.put(3, 0)
    sender.end_turn()
    sender.lanes.accepted("a@1", 3, 7, {0: 1})
    assert sender.accepted == [2]
    sender.wires["b@1"].take()
    sender.owners[0] = "b@1"
    sender.log_says(9, sender.owners)
    assert sender.wires["b@1"].take() == [(1, 9, packets(1, 3))]


def test_an_acceptance_without_a_slot_that_the_core_lost_meanwhile_means_nothing(sender: Sender) -> None:
    sender.put(1, 0)
    sender.put(2, 1)
    sender.end_turn()
    sender.lanes.accepted("a@1", 1, 8, {0: 1})
    assert sender.accepted == []
    assert sender.lanes.is_behind()


def test_publishers_to_a_slot_of_which_much_is_stuck_are_paused_and_no_others(sender: Sender) -> None:
    slots = sender.put(1, 0, size=bounds.SLOT_BLOCKED_BYTES)
    other = sender.put(2, 1)
    sender.end_turn()
    sender.lanes.accepted("a@1", 1, 7, {0: 1})
    assert len(sender.lanes.slow_queues(slots, b"publisher")) == 1
    assert sender.lanes.slow_queues(other, b"publisher") == []
    sender.now_s += bounds.CONGESTED_KEPT_S
    sender.lanes.update_flow()
    assert len(sender.lanes.slow_queues(slots, b"publisher")) == 1, "for as long as it is blocked"
    sender.lanes.accepted("a@1", 1, 7, {})
    sender.now_s += bounds.CONGESTED_KEPT_S
    sender.lanes.update_flow()
    assert sender.lanes.slow_queues(slots, b"publisher") == []


# While Redis is short of memory.


def takes(sender: Sender, *slots: int) -> bool:
    return sender.lanes.takes(SlotSet(list(slots)), message(1))


def test_what_would_wait_in_redis_is_refused_while_it_is_short_and_all_else_is_taken(sender: Sender) -> None:
    sender.lanes.redis_is_short(True)
    assert not takes(sender, 0), "nobody said anything"
    sender.lanes.back_pressure.report_memory_pressure(0, True, [])
    sender.lanes.back_pressure.report_memory_pressure(1, False, [b"other/#", b"+"])
    sender.lanes.back_pressure.report_memory_pressure(2, False, [b"t/t"])
    assert [takes(sender, slot) for slot in (0, 1, 2, 3)] == [True, False, True, False]
    assert takes(sender, 0, 2)
    assert not takes(sender, 0, 1, 2), "what some of its sessions refuse none is given"
    assert [sender.lanes.takes_shared(slot, 9) for slot in (0, 1, 3)] == [True, False, False]
    assert sender.lanes.refused == 4
    untold = [sender.lanes.takes(SlotSet([n]), message(1), can_be_refused=False) for n in (0, 1, 3)]
    assert untold == [True, True, False], "what a client can't be told is up to homes that say something"
    sender.lanes.redis_is_short(False)
    assert takes(sender, 1)


def test_what_a_home_said_is_believed_for_a_while(sender: Sender) -> None:
    sender.lanes.redis_is_short(True)
    sender.lanes.back_pressure.report_memory_pressure(0, True, [])
    sender.now_s += bounds.TAKERS_KEPT_S
    assert takes(sender, 0), "it is forgotten between turns, not amid one"
    sender.lanes.redis_is_short(True)
    assert not takes(sender, 0)
