"""What comes is taken in order and once, answered when it is durable, and taken again when a slot was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from flockmq import bounds
from flockmq.delivery.slot_acceptance import SlotBarriers
from flockmq.delivery.slot_receiver import SlotReceiver
from flockmq.mqtt.message import aged, publication
from flockmq.routing.slots import SlotMessage

Done = Callable[[bool], None]


class Sessions:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.at = 10
        self.changed_at = 5
        self.loading = False
        self.changing = False
        self.waits: list[SlotBarriers] = []
        self.taken: list[int] = []
        self.packets: list[bytes] = []
        self.dones: list[Done] = []
        self.runs: list[bytes] = []
        self.fails = False
        self.is_holding = False

    def advance(self) -> None: ...

    def is_changing(self) -> bool:
        return self.changing

    def epoch(self) -> int:
        return self.at

    def view(self) -> int:
        return self.changed_at

    def is_loading(self) -> bool:
        return self.loading

    def take(self, messages: Sequence[SlotMessage], epoch: int, sender: str, done: Done) -> SlotBarriers | None:
        self.packets += [message.packet for message in messages]
        self.taken += [message.number for message in messages]
        if self.fails:
            raise ValueError("poison")
        if slots := dict.fromkeys(slot for message in messages for slot in message.slots):
            self.waits.append(SlotBarriers(slots, done))
            return self.waits[-1]
        self.dones.append(done)
        return None

    def take_runs(self, messages: Sequence[SlotMessage]) -> None:
        if self.fails:
            raise ValueError("poison")
        self.runs += [message.packet for message in messages]


class Owner:
    def __init__(self) -> None:
        self.sessions = Sessions()
        self.members = {"a@1"}
        self.now_s = 100.0
        self.soon: list[Callable[[], None]] = []
        self.answers: list[tuple[int, int]] = []
        self.blocked: dict[int, int] = {}
        self.receiver = SlotReceiver(self.sessions, self.members.__contains__, self.soon.append, lambda: self.now_s)

    def received(self, number: int, epoch: int = 10, sender: str = "a@1") -> None:
        self.receiver.received(
            sender, self.answered, number, epoch, [SlotMessage(b"a-source", number, b"", 4, b"")], 100
        )

    def came_for(self, number: int, *slots: int) -> None:
        messages = [SlotMessage(b"a-source", number, b"", 4, b"", [slot]) for slot in slots]
        self.receiver.received("a@1", self.answered, number, 10, messages, 100)

    def answered(self, number: int, view: int, blocked: dict[int, int]) -> None:
        self.blocked = blocked
        self.answers.append((number, view))

    def end_turn(self) -> list[tuple[int, int]]:
        calls = self.soon.copy()
        self.soon.clear()
        for call in calls:
            call()
        answers = self.answers.copy()
        self.answers.clear()
        return answers


@pytest.fixture
def owner() -> Owner:
    return Owner()


def test_the_last_of_all_that_are_durable_is_answered_once_a_turn(owner: Owner) -> None:
    for number in (1, 2, 4):
        owner.received(number)
    assert owner.receiver.held_bytes("a@1") == 300
    owner.sessions.dones[1](True)
    assert owner.end_turn() == [], "the first isn't durable"
    owner.sessions.dones[0](True)
    owner.sessions.dones[2](True)
    assert owner.end_turn() == [(4, 5)]
    assert owner.receiver.held_bytes("a@1") == 0


def test_a_repeat_is_not_taken_and_is_answered_on_the_link_it_came_on(owner: Owner) -> None:
    owner.received(1)
    owner.sessions.dones[0](True)
    owner.end_turn()
    later: list[int] = []
    owner.receiver.received("a@1", lambda number, *_: later.append(number), 1, 10, [], 0)
    assert (owner.end_turn(), later, owner.sessions.taken) == ([], [1], [1])


def test_a_repeat_of_what_is_not_durable_yet_is_answered_when_it_is(owner: Owner) -> None:
    owner.received(1)
    owner.received(1)
    assert owner.end_turn() == []
    owner.sessions.dones[0](True)
    assert owner.end_turn() == [(1, 5)]


def test_it_waits_for_the_log_for_slots_and_for_its_sender_to_be_a_member(owner: Owner) -> None:
    owner.received(1, epoch=11)
    owner.received(2)
    assert (owner.sessions.taken, owner.receiver.is_holding) == ([], True)
    owner.sessions.at = 11
    owner.sessions.loading = True
    owner.receiver.advance()
    assert owner.sessions.taken == []
    owner.sessions.loading = False
    owner.members.clear()
    owner.receiver.advance()
    assert owner.sessions.taken == []
    owner.members.add("a@1")
    owner.receiver.advance()
    assert owner.sessions.taken == [1, 2]
    for done in owner.sessions.dones:
        done(True)
    assert not owner.receiver.is_holding


def test_a_batch_that_a_slot_lost_is_taken_again_with_all_behind_it_when_that_was_dealt_with(owner: Owner) -> None:
    for number in (1, 2, 3, 4):
        owner.received(number)
    owner.sessions.dones[2](True)
    owner.sessions.dones[1](False)
    owner.received(5)
    assert owner.sessions.taken == [1, 2, 3, 4], "nothing passes what must be taken again"
    owner.sessions.loading = True
    owner.sessions.dones[0](True)
    assert owner.end_turn() == [(1, 5)]
    assert owner.sessions.taken == [1, 2, 3, 4]
    owner.sessions.changed_at = 9
    owner.sessions.loading = False
    owner.receiver.advance()
    assert owner.sessions.taken == [1, 2, 3, 4, 2, 4, 5], "the third is durable"
    owner.sessions.dones[3](True)
    assert owner.end_turn() == [], "an answer to the first try means nothing any more"
    for done in owner.sessions.dones[4:]:
        done(True)
    assert owner.end_turn() == [(5, 9)]


def test_what_came_behind_is_answered_without_the_slots_that_are_stuck(owner: Owner) -> None:
    owner.came_for(1, 7, 8)
    owner.came_for(2, 8)
    owner.came_for(3, 8)
    owner.sessions.waits[0].one(8, True)
    owner.sessions.waits[1].one(8, True)
    assert owner.end_turn() == [], "the first may be durable soon"
    owner.now_s += 2 * bounds.TAKEN_APART_AFTER_S
    owner.receiver.advance()
    assert owner.end_turn() == [(3, 5)]
    assert owner.blocked == {7: 1, 8: 3}
    owner.sessions.waits[2].one(8, True)
    owner.came_for(4, 9)
    assert owner.end_turn() == [(3, 5)], "the fourth isn't durable, and not for long"
    assert owner.blocked == {7: 1}
    owner.sessions.waits[0].one(7, True)
    owner.sessions.waits[3].one(9, True)
    assert owner.end_turn() == [(4, 5)]
    assert owner.blocked == {}
    assert owner.receiver.held_bytes("a@1") == 0


def test_nodes_that_do_not_say_for_which_slots_are_answered_in_order(owner: Owner) -> None:
    owner.received(1)
    owner.came_for(2, 8)
    owner.sessions.waits[0].one(8, True)
    owner.now_s += 2 * bounds.TAKEN_APART_AFTER_S
    owner.receiver.advance()
    assert owner.end_turn() == []
    owner.sessions.dones[0](True)
    assert owner.end_turn() == [(2, 5)]


def test_what_says_for_which_slots_it_is_waits_for_no_slot(owner: Owner) -> None:
    owner.sessions.loading = True
    owner.came_for(1, 8)
    assert owner.sessions.taken == [1]
    owner.received(2)
    owner.came_for(3, 8)
    assert owner.sessions.taken == [1], "but for what came before it"
    owner.sessions.changing = True
    owner.sessions.loading = False
    owner.receiver.advance()
    assert owner.sessions.taken == [1]


def test_what_is_known_to_be_lost_only_after_the_loss_was_dealt_with_is_taken_again_as_well(owner: Owner) -> None:
    """The batch had another slot, too, whose answer Redis gave later."""
    owner.received(1)
    owner.sessions.changed_at = 9
    owner.receiver.advance()
    owner.sessions.dones[0](False)
    assert owner.sessions.taken == [1], "not amid whatever said so"
    owner.end_turn()
    assert owner.sessions.taken == [1, 1]
    owner.sessions.dones[1](True)
    assert owner.end_turn() == [(1, 9)]


def test_what_a_purged_node_sent_is_not_taken_again(owner: Owner) -> None:
    owner.received(1)
    owner.sessions.dones[0](False)
    owner.receiver.node_gone("a@1")
    owner.end_turn()
    assert owner.sessions.taken == [1]


def test_what_a_purged_node_sent_counts_no_more(owner: Owner) -> None:
    owner.received(1, epoch=11)
    owner.received(1, sender="b@1")
    owner.receiver.node_gone("a@1")
    owner.receiver.node_gone("b@1")
    owner.sessions.at = 11
    owner.receiver.advance()
    assert (owner.sessions.taken, owner.receiver.is_holding, owner.receiver.held_bytes("a@1")) == ([], False, 0)


def test_what_was_not_committed_when_its_sender_was_no_member_is_taken_again(owner: Owner) -> None:
    """Sessions drop what they hold of such a node, and count the rest of its batch as committed."""
    owner.received(1)
    owner.received(2)
    owner.received(3)
    owner.sessions.dones[0](True)
    owner.members.clear()
    owner.receiver.suspend("a@1")
    owner.sessions.dones[1](True)
    assert owner.end_turn() == [(1, 5)]
    owner.receiver.advance()
    assert owner.sessions.taken == [1, 2, 3]
    owner.members.add("a@1")
    owner.receiver.advance()
    assert owner.sessions.taken == [1, 2, 3, 2, 3]
    owner.sessions.dones[2](True)
    assert owner.end_turn() == []
    owner.sessions.dones[3](True)
    owner.sessions.dones[4](True)
    assert owner.end_turn() == [(3, 5)]
    assert owner.receiver.held_bytes("a@1") == 0


def test_an_answer_for_a_node_that_is_gone_is_not_sent(owner: Owner) -> None:
    owner.received(1)
    owner.receiver.node_gone("a@1")
    owner.sessions.dones[0](True)
    assert owner.end_turn() == []


def test_runs_are_put_at_once_and_not_answered(owner: Owner) -> None:
    owner.receiver.received("a@1", owner.answered, 0, 99, [SlotMessage(b"", 0, b"", 4, b"run")], 3)
    assert (owner.sessions.runs, owner.end_turn()) == ([b"run"], [])


def test_poison_is_logged_and_does_not_come_again(owner: Owner, caplog: pytest.LogCaptureFixture) -> None:
    owner.sessions.fails = True
    owner.received(1)
    owner.received(0)
    assert owner.end_turn() == [(1, 5)]
    assert len(caplog.records) == 2


def test_another_incarnation_of_this_node_counts_everybody_from_one(owner: Owner) -> None:
    owner.received(1)
    owner.received(2)
    owner.receiver.reset()
    owner.received(1)
    assert owner.sessions.taken == [1, 2, 1]


def test_the_expiry_of_a_message_runs_while_it_is_held(owner: Owner) -> None:
    packet = publication(5, 1, False, b"t", b"", b"\x02\0\0\0\x3c", 60).packet
    owner.sessions.loading = True
    owner.receiver.received("a@1", owner.answered, 1, 10, [SlotMessage(b"a-source", 1, b"", 5, packet)], 100)
    owner.now_s += 7.9
    owner.sessions.loading = False
    owner.receiver.advance()
    assert owner.sessions.packets == [aged(packet, 7)]
