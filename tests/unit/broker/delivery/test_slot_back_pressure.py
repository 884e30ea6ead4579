"""Which publishers pause, and what is refused: slots are congested, Redis is stuck or short of memory."""

from __future__ import annotations

from flockmq import bounds
from flockmq.routing.slots import slot_of
from flockmq.routing.targets import SlotSet
from unit.broker.delivery.sender import Sender, message, packets


def test_who_publishes_to_a_congested_slot_pauses_until_its_owner_says_that_it_is_none_any_more(sender: Sender) -> None:
    congested, other = SlotSet([0, 2]), SlotSet([1])
    sender.slot_sender.back_pressure.congest(0, True)
    sender.slot_sender.back_pressure.congest(0, True)
    assert (sender.slot_sender.congested, len(sender.slot_sender.back_pressure.congested)) == (1, 1)
    [slot] = sender.slot_sender.slow_queues(congested, b"p")
    assert sender.slot_sender.slow_queues(other, b"p") == [], "of the same owner"
    sender.slot_sender.back_pressure.congest(0, False)
    sender.slot_sender.back_pressure.congest(0, False)
    assert (sender.drained, sender.slot_sender.congested, sender.slot_sender.slow_queues(congested, b"p")) == (
        [slot],
        0,
        [],
    )


def test_a_congested_slot_of_which_nothing_is_heard_any_more_is_none(sender: Sender) -> None:
    sender.slot_sender.back_pressure.congest(0, True)
    sender.now_s += bounds.CONGESTED_KEPT_S / 2
    sender.slot_sender.back_pressure.congest(0, True)
    sender.now_s += bounds.CONGESTED_KEPT_S / 2
    sender.slot_sender.update_flow()
    assert (sender.drained, sender.slot_sender.congested) == ([], 1)
    sender.now_s += bounds.CONGESTED_KEPT_S / 2
    sender.slot_sender.update_flow()
    assert (len(sender.drained), sender.slot_sender.congested) == (1, 0)


def test_nobody_pauses_for_its_own_slot_where_its_own_acknowledgements_may_be_waited_for(sender: Sender) -> None:
    own = slot_of(b"p")
    sender.log_says(8, {own: "a@1", own + 1: "a@1"})
    sender.slot_sender.back_pressure.congest(own, True)
    slots = SlotSet([own])
    assert sender.slot_sender.slow_queues(slots, b"p") == []
    assert len(sender.slot_sender.slow_queues(slots, b"q")) == 1


def test_messages_for_a_slot_that_is_stuck_hold_up_none_for_others(sender: Sender) -> None:
    sender.put(1, 0)
    sender.put(2, 1)
    sender.end_turn()
    sender.put(3, 0, 1)
    sender.put(4, 1)
    sender.end_turn()
    sender.wires["a@1"].take()
    sender.slot_sender.accepted("a@1", 2, 7, {0: 1})
    assert sender.accepted == [2, 4]
    assert sender.slot_sender.waiting_messages == 2
    assert sender.slot_sender.blocked_bytes == sender.slot_sender.waiting_bytes
    sender.slot_sender.unlinked("a@1")
    sender.slot_sender.linked("a@1", sender.wires["a@1"])
    assert sender.wires["a@1"].take() == [(1, 7, packets(1)), (2, 7, packets(3))], "those that aren't durable"
    sender.slot_sender.accepted("a@1", 2, 7, {0: 2})
    assert sender.accepted == [2, 4, 1]
    sender.put(5, 0)
    sender.end_turn()
    sender.slot_sender.accepted("a@1", 3, 7, {})
    assert sender.accepted == [2, 4, 1, 3, 5]
    assert (
        sender.slot_sender.waiting_messages,
        sender.slot_sender.waiting_bytes,
        sender.slot_sender.blocked_bytes,
    ) == (0, 0, 0)


def test_what_is_stuck_goes_again_in_its_order_when_its_slot_moves(sender: Sender) -> None:
    sender.put(1, 0)
    sender.end_turn()
    sender.put(2, 1)
    sender.end_turn()
    sender.put(3, 0)
    sender.end_turn()
    sender.slot_sender.accepted("a@1", 3, 7, {0: 1})
    assert sender.accepted == [2]
    sender.wires["b@1"].take()
    sender.owners[0] = "b@1"
    sender.log_says(9, sender.owners)
    assert sender.wires["b@1"].take() == [(1, 9, packets(1, 3))]


def test_publishers_to_a_slot_of_which_much_is_stuck_are_paused_and_no_others(sender: Sender) -> None:
    slots = sender.put(1, 0, size=bounds.SLOT_BLOCKED_BYTES)
    other = sender.put(2, 1)
    sender.end_turn()
    sender.slot_sender.accepted("a@1", 1, 7, {0: 1})
    assert len(sender.slot_sender.slow_queues(slots, b"publisher")) == 1
    assert sender.slot_sender.slow_queues(other, b"publisher") == []
    sender.now_s += bounds.CONGESTED_KEPT_S
    sender.slot_sender.update_flow()
    assert len(sender.slot_sender.slow_queues(slots, b"publisher")) == 1, "for as long as it is blocked"
    sender.slot_sender.accepted("a@1", 1, 7, {})
    sender.now_s += bounds.CONGESTED_KEPT_S
    sender.slot_sender.update_flow()
    assert sender.slot_sender.slow_queues(slots, b"publisher") == []


def takes(sender: Sender, *slots: int) -> bool:
    return sender.slot_sender.takes(SlotSet(list(slots)), message(1))


def test_what_would_wait_in_redis_is_refused_while_it_is_short_and_all_else_is_taken(sender: Sender) -> None:
    sender.slot_sender.redis_is_short(True)
    assert not takes(sender, 0), "nobody said anything"
    sender.slot_sender.back_pressure.report_memory_pressure(0, True, [])
    sender.slot_sender.back_pressure.report_memory_pressure(1, False, [b"other/#", b"+"])
    sender.slot_sender.back_pressure.report_memory_pressure(2, False, [b"t/t"])
    assert [takes(sender, slot) for slot in (0, 1, 2, 3)] == [True, False, True, False]
    assert takes(sender, 0, 2)
    assert not takes(sender, 0, 1, 2), "what some of its sessions refuse none is given"
    assert [sender.slot_sender.takes_shared(slot, 9) for slot in (0, 1, 3)] == [True, False, False]
    assert sender.slot_sender.refused == 4
    untold = [sender.slot_sender.takes(SlotSet([n]), message(1), can_be_refused=False) for n in (0, 1, 3)]
    assert untold == [True, True, False], "what a client can't be told is up to owners that say something"
    sender.slot_sender.redis_is_short(False)
    assert takes(sender, 1)


def test_what_an_owner_said_is_believed_for_a_while(sender: Sender) -> None:
    sender.slot_sender.redis_is_short(True)
    sender.slot_sender.back_pressure.report_memory_pressure(0, True, [])
    sender.now_s += bounds.TAKERS_KEPT_S
    assert takes(sender, 0), "it is forgotten between turns, not amid one"
    sender.slot_sender.redis_is_short(True)
    assert not takes(sender, 0)
