"""Messages for slots: numbered, sent once to each core, bounded, and sent again when links or slots are lost."""

from __future__ import annotations

from flockmq import bounds
from flockmq.delivery.batch_queue import size_of
from flockmq.mqtt.message import publication
from flockmq.routing.message_id import origin_of, session_source
from flockmq.routing.targets import SlotSet
from unit.broker.delivery.sender import Sender, Wire, expiring, left_s, message, packets


def test_a_message_goes_once_to_each_core_and_is_through_when_all_have_it(sender: Sender) -> None:
    sender.put(1, 0, 1, 2)
    sender.put(2, 1)
    sender.end_turn()
    assert sender.wires["a@1"].take() == [(1, 7, packets(1, 2))]
    assert sender.wires["b@1"].take() == [(1, 7, packets(1))]
    sender.slot_sender.accepted("a@1", 1, 7, {})
    assert sender.accepted == [2]
    sender.slot_sender.accepted("b@1", 1, 5, {})
    assert sender.accepted == [2, 1]
    assert (sender.slot_sender.waiting_messages, sender.slot_sender.waiting_bytes) == (0, 0)


def test_messages_are_numbered_by_this_node_or_have_their_origin(sender: Sender) -> None:
    origin = origin_of(session_source(bytes(8)), 9)
    for number in (1, 2):
        sender.put(number, 0)
    sender.put(3, 0, origin=origin)
    sender.put(4, 0)
    sender.end_turn()
    messages = sender.wires["a@1"].batches[0][2]
    me = sender.slot_sender.source
    ids = [(message.source, message.number) for message in messages]
    assert ids == [(me, 1), (me, 2), (session_source(bytes(8)), 9), (me, 3)]


def test_the_expiry_of_a_message_runs_while_it_waits(sender: Sender) -> None:
    slots = SlotSet([3])
    for expiry_s in (60, 5):
        sender.slot_sender.put_acknowledged(slots, expiring(expiry_s), sender.told(expiry_s))
    sender.now_s += 9.5
    sender.log_says(9, {**sender.owners, 3: "b@1"})
    [(_, _, parked)] = sender.wires["b@1"].take()
    assert [left_s(packet) for packet in parked] == [51, 0]
    sender.now_s += 0.5
    sender.slot_sender.linked("b@1", sender.wires["b@1"])
    [(_, _, again)] = sender.wires["b@1"].take()
    assert [left_s(packet) for packet in again] == [50, 0], "no second is counted twice, none is lost"


def test_what_one_core_has_does_not_grow_old_by_what_it_waits_for_another(sender: Sender) -> None:
    """The core may be this node: its owner has the message itself, and counts by itself for how long."""
    sender.slot_sender.put_acknowledged(SlotSet([0, 2]), expiring(60), sender.told(1))
    sender.slot_sender.unlinked("b@1")
    sender.end_turn()
    [(_, _, [message])] = sender.wires["a@1"].batches
    sender.now_s += 25
    sender.slot_sender.linked("b@1", sender.wires["b@1"])
    assert [left_s(packet) for _, _, packets in sender.wires["b@1"].take() for packet in packets] == [35]
    assert left_s(message.packet) == 60


def test_what_has_no_owner_waits_for_one(sender: Sender) -> None:
    sender.put(1, 3)
    sender.put(2, 2, 3)
    sender.end_turn()
    assert sender.slot_sender.unassigned_messages == 2
    sender.wires["b@1"].take()
    sender.slot_sender.accepted("b@1", 1, 7, {})
    sender.log_says(9, {**sender.owners, 3: "b@1"})
    assert sender.slot_sender.unassigned_messages == 0
    assert sender.wires["b@1"].take() == [(2, 9, packets(1, 2))]
    assert sender.accepted == []
    sender.slot_sender.accepted("b@1", 2, 9, {})
    assert sender.accepted == [1, 2]


def test_a_core_that_goes_while_its_link_is_full_holds_nobody_up(sender: Sender) -> None:
    sender.wires["a@1"].data_bytes = bounds.PEER_BLOCKED_BYTES + 1
    slots = sender.put(1, 0)
    sender.end_turn()
    [paused] = sender.slot_sender.slow_queues(slots, b"p")
    sender.log_says(9, dict.fromkeys(range(3), "b@1"))
    sender.slot_sender.gone("a@1")
    sender.slot_sender.update_flow()
    assert sender.drained == [paused]
    assert sender.slot_sender.congested == 0


def test_a_queue_whose_slots_stay_is_left_alone(sender: Sender) -> None:
    sender.put(1, 0, 2)
    sender.end_turn()
    for wire in sender.wires.values():
        wire.take()
    sender.log_says(9, {**sender.owners, 3: "b@1"})
    assert sender.wires["a@1"].take() == []
    assert sender.wires["b@1"].take() == [(2, 9, packets(1))]
    sender.slot_sender.accepted("b@1", 1, 9, {})
    assert sender.slot_sender.waiting_messages == 2, (
        "the batch it accepted was let go: the one that counts is the second"
    )
    sender.slot_sender.accepted("b@1", 2, 9, {})
    sender.slot_sender.accepted("a@1", 1, 7, {})
    assert sender.accepted == [1]


def test_an_acceptance_under_a_later_view_counts_when_it_was_put_again(sender: Sender) -> None:
    sender.put(1, 0)
    sender.end_turn()
    sender.wires["a@1"].take()
    sender.slot_sender.accepted("a@1", 1, 12, {})
    assert (sender.accepted, sender.slot_sender.is_behind()) == ([], True)
    sender.log_says(11, sender.owners)
    assert sender.wires["a@1"].take() == [], "this node isn't there yet either"
    sender.log_says(12, sender.owners)
    assert sender.wires["a@1"].take() == [(2, 12, packets(1))]
    sender.slot_sender.accepted("a@1", 2, 12, {})
    assert (sender.accepted, sender.slot_sender.is_behind()) == ([1], False)


def test_no_more_than_the_window_is_under_way(sender: Sender) -> None:
    count = 3 * bounds.SLOT_WINDOW_BYTES // 100_000
    for number in range(count):
        sender.put(number, 0, size=100_000)
    sender.end_turn()
    wire = sender.wires["a@1"]
    went = sum(size_of(message) for _, _, messages in wire.batches for message in messages)
    assert 0 <= went - bounds.SLOT_WINDOW_BYTES < bounds.LINK_FORWARD_FRAME_BYTES
    while wire.batches:
        number = wire.batches[-1][0]
        wire.batches.clear()
        sender.slot_sender.accepted("a@1", number, 7, {})
    assert sender.accepted == list(range(count))


def test_after_a_lost_link_what_was_under_way_goes_again_under_its_numbers(sender: Sender) -> None:
    for number in (1, 2, 3):
        sender.put(number, 0)
        sender.end_turn()
    sender.slot_sender.accepted("a@1", 1, 7, {})
    sender.slot_sender.unlinked("a@1")
    sender.put(4, 0)
    sender.end_turn()
    again = Wire()
    sender.slot_sender.linked("a@1", again)
    assert again.take() == [(2, 7, packets(2)), (3, 7, packets(3)), (4, 7, packets(4))]


def test_a_full_queue_takes_nothing_and_long_before_it_is_congested(sender: Sender) -> None:
    size = 1_000_000
    slots = sender.put(0, 0, size=size)
    refused = 0
    for number in range(1, 100):
        refused += sender.slot_sender.put_acknowledged(slots, message(number, size), sender.told(number)) < 0
    assert refused > 0
    assert sender.slot_sender.waiting_bytes <= bounds.SLOT_QUEUE_MAX_BYTES
    both = SlotSet([0, 2])
    assert sender.slot_sender.put_acknowledged(both, message(1, size), sender.told(1)) == -1
    assert sender.slot_sender.waiting_messages == 100 - refused, "nothing was put to the other queue"
    retained = publication(4, 1, True, b"t", bytes(size), b"")
    assert not sender.slot_sender.takes(both, retained)
    assert sender.slot_sender.put_acknowledged(both, retained, sender.told(1)) == 1, "the log has it"
    assert (sender.slot_sender.congested, sender.slot_sender.slow_queues(both, b"p")) == (0, [])
    sender.end_turn()
    assert sender.slot_sender.congested == 1
    (slow,) = sender.slot_sender.slow_queues(both, b"p")
    while sender.wires["a@1"].batches:
        number = sender.wires["a@1"].batches[-1][0]
        sender.wires["a@1"].batches.clear()
        sender.slot_sender.accepted("a@1", number, 7, {})
    assert (sender.drained, sender.slot_sender.congested) == ([slow], 0)


def test_a_congested_link_congests_its_queue_until_it_drained(sender: Sender) -> None:
    wire = sender.wires["a@1"]
    wire.data_bytes = bounds.PEER_BLOCKED_BYTES + 1
    sender.put(1, 0)
    sender.end_turn()
    assert sender.slot_sender.congested == 1
    sender.slot_sender.update_flow()
    assert sender.drained == []
    wire.data_bytes = 0
    sender.slot_sender.update_flow()
    assert (len(sender.drained), sender.slot_sender.congested) == (1, 0)


def test_runs_go_to_each_core_without_a_number_or_are_dropped_and_counted(sender: Sender) -> None:
    slots = SlotSet([0, 1, 2, 3])
    sender.slot_sender.put_run(slots, 5, b"run", b"client")
    sender.end_turn()
    assert sender.wires["a@1"].take() == sender.wires["b@1"].take() == [(0, 7, [b"run"])]
    assert sender.slot_sender.dropped_bytes == 3, "slot 3 has no owner"
    sender.wires["a@1"].data_bytes = bounds.PEER_BLOCKED_BYTES + 1
    sender.put(1, 0)
    sender.end_turn()
    sender.wires["a@1"].take()
    sender.slot_sender.unlinked("b@1")
    sender.slot_sender.put_run(slots, 5, b"run", b"client")
    sender.end_turn()
    assert sender.wires["a@1"].take() == sender.wires["b@1"].take() == []
    assert sender.slot_sender.dropped_bytes == 12


def test_a_purged_core_is_forgotten_when_its_slots_went(sender: Sender) -> None:
    sender.put(1, 2)
    sender.end_turn()
    sender.slot_sender.gone("b@1")
    assert sender.slot_sender.carrier_of("b@1") is not None
    sender.log_says(9, {0: "a@1", 1: "a@1", 2: "a@1"})
    assert sender.slot_sender.carrier_of("b@1") is None
    assert sender.wires["a@1"].take() == [(1, 9, packets(1))]
    sender.slot_sender.accepted("b@1", 1, 7, {})
    assert sender.accepted == []


def test_a_core_that_was_gone_and_is_back_takes_none_for_a_repeat(sender: Sender) -> None:
    """Its row, and its slots, were away for a moment: it knows the number that it had last."""
    sender.put(1, 2)
    sender.put(2, 2)
    sender.end_turn()
    sender.slot_sender.accepted("b@1", 1, 7, {})
    sender.slot_sender.gone("b@1")
    sender.log_says(9, {0: "a@1", 1: "a@1"})
    sender.wires["b@1"].take()
    sender.log_says(10, sender.owners)
    sender.put(3, 2)
    sender.end_turn()
    assert sender.wires["b@1"].take()[-1] == (2, 10, packets(3))


def test_who_is_told_may_put_more(sender: Sender) -> None:
    slots = SlotSet([0])
    sender.slot_sender.put_acknowledged(slots, message(1), lambda: put_again(2))

    def put_again(number: int) -> None:
        sender.put(number, 0)

    sender.end_turn()
    sender.wires["a@1"].take()
    sender.slot_sender.accepted("a@1", 1, 7, {})
    sender.end_turn()
    assert sender.wires["a@1"].take() == [(2, 7, packets(2))]


def test_an_acceptance_without_a_slot_that_the_core_lost_meanwhile_means_nothing(sender: Sender) -> None:
    sender.put(1, 0)
    sender.put(2, 1)
    sender.end_turn()
    sender.slot_sender.accepted("a@1", 1, 8, {0: 1})
    assert sender.accepted == []
    assert sender.slot_sender.is_behind()
