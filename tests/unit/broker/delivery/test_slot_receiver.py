"""What comes is taken in order and once, answered when it is durable, and taken again when a slot was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from flockmq import bounds
from flockmq.delivery.commit_barriers import SlotBarriers
from flockmq.delivery.slot_receiver import SlotReceiver
from flockmq.mqtt.message import aged, publication
from flockmq.routing.slots import SlotMessage

Done = Callable[[bool], None]


class Homed:
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

    def take(self, letters: Sequence[SlotMessage], epoch: int, sender: str, done: Done) -> SlotBarriers | None:
        self.packets += [letter.packet for letter in letters]
        self.taken += [letter.number for letter in letters]
        if self.fails:
            raise ValueError("poison")
        if slots := dict.fromkeys(slot for letter in letters for slot in letter.slots):
            self.waits.append(SlotBarriers(slots, done))
            return self.waits[-1]
        self.dones.append(done)
        return None

    def take_runs(self, letters: Sequence[SlotMessage]) -> None:
        if self.fails:
            raise ValueError("poison")
        self.runs += [letter.packet for letter in letters]


class Home:
    def __init__(self) -> None:
        self.residents = Homed()
        self.members = {"a@1"}
        self.now_s = 100.0
        self.soon: list[Callable[[], None]] = []
        self.answers: list[tuple[int, int]] = []
        self.blocked: dict[int, int] = {}
        self.intake = SlotReceiver(self.residents, self.members.__contains__, self.soon.append, lambda: self.now_s)

    def received(self, number: int, epoch: int = 10, sender: str = "a@1") -> None:
        self.intake.received(sender, self.answered, number, epoch, [SlotMessage(b"a-source", number, b"", 4, b"")], 100)

    def came_for(self, number: int, *slots: int) -> None:
        letters = [SlotMessage(b"a-source", number, b"", 4, b"", [slot]) for slot in slots]
        self.intake.received("a@1", self.answered, number, 10, letters, 100)

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
def home() -> Home:
    return Home()


def test_the_last_of_all_that_are_durable_is_answered_once_a_turn(home: Home) -> None:
    for number in (1, 2, 4):
        home.received(number)
    assert home.intake.held_bytes("a@1") == 300
    home.residents.dones[1](True)
    assert home.end_turn() == [], "the first isn't durable"
    home.residents.dones[0](True)
    home.residents.dones[2](True)
    assert home.end_turn() == [(4, 5)]
    assert home.intake.held_bytes("a@1") == 0


def test_a_repeat_is_not_taken_and_is_answered_on_the_link_it_came_on(home: Home) -> None:
    home.received(1)
    home.residents.dones[0](True)
    home.end_turn()
    later: list[int] = []
    home.intake.received("a@1", lambda number, *_: later.append(number), 1, 10, [], 0)
    assert (home.end_turn(), later, home.residents.taken) == ([], [1], [1])


def test_a_repeat_of_what_is_not_durable_yet_is_answered_when_it_is(home: Home) -> None:
    home.received(1)
    home.received(1)
    assert home.end_turn() == []
    home.residents.dones[0](True)
    assert home.end_turn() == [(1, 5)]


def test_it_waits_for_the_log_for_slots_and_for_its_sender_to_be_a_member(home: Home) -> None:
    home.received(1, epoch=11)
    home.received(2)
    assert (home.residents.taken, home.intake.is_holding) == ([], True)
    home.residents.at = 11
    home.residents.loading = True
    home.intake.advance()
    assert home.residents.taken == []
    home.residents.loading = False
    home.members.clear()
    home.intake.advance()
    assert home.residents.taken == []
    home.members.add("a@1")
    home.intake.advance()
    assert home.residents.taken == [1, 2]
    for done in home.residents.dones:
        done(True)
    assert not home.intake.is_holding


def test_a_batch_that_a_slot_lost_is_taken_again_with_all_behind_it_when_that_was_dealt_with(home: Home) -> None:
    for number in (1, 2, 3, 4):
        home.received(number)
    home.residents.dones[2](True)
    home.residents.dones[1](False)
    home.received(5)
    assert home.residents.taken == [1, 2, 3, 4], "nothing passes what must be taken again"
    home.residents.loading = True
    home.residents.dones[0](True)
    assert home.end_turn() == [(1, 5)]
    assert home.residents.taken == [1, 2, 3, 4]
    home.residents.changed_at = 9
    home.residents.loading = False
    home.intake.advance()
    assert home.residents.taken == [1, 2, 3, 4, 2, 4, 5], "the third is durable"
    home.residents.dones[3](True)
    assert home.end_turn() == [], "an answer to the first try means nothing any more"
    for done in home.residents.dones[4:]:
        done(True)
    assert home.end_turn() == [(5, 9)]


def test_what_came_behind_is_answered_without_the_slots_that_are_stuck(home: Home) -> None:
    home.came_for(1, 7, 8)
    home.came_for(2, 8)
    home.came_for(3, 8)
    home.residents.waits[0].one(8, True)
    home.residents.waits[1].one(8, True)
    assert home.end_turn() == [], "the first may be durable soon"
    home.now_s += 2 * bounds.TAKEN_APART_AFTER_S
    home.intake.advance()
    assert home.end_turn() == [(3, 5)]
    assert home.blocked == {7: 1, 8: 3}
    home.residents.waits[2].one(8, True)
    home.came_for(4, 9)
    assert home.end_turn() == [(3, 5)], "the fourth isn't durable, and not for long"
    assert home.blocked == {7: 1}
    home.residents.waits[0].one(7, True)
    home.residents.waits[3].one(9, True)
    assert home.end_turn() == [(4, 5)]
    assert home.blocked == {}
    assert home.intake.held_bytes("a@1") == 0


def test_nodes_that_do_not_say_for_which_slots_are_answered_in_order(home: Home) -> None:
    home.received(1)
    home.came_for(2, 8)
    home.residents.waits[0].one(8, True)
    home.now_s += 2 * bounds.TAKEN_APART_AFTER_S
    home.intake.advance()
    assert home.end_turn() == []
    home.residents.dones[0](True)
    assert home.end_turn() == [(2, 5)]


def test_what_says_for_which_slots_it_is_waits_for_no_slot(home: Home) -> None:
    home.residents.loading = True
    home.came_for(1, 8)
    assert home.residents.taken == [1]
    home.received(2)
    home.came_for(3, 8)
    assert home.residents.taken == [1], "but for what came before it"
    home.residents.changing = True
    home.residents.loading = False
    home.intake.advance()
    assert home.residents.taken == [1]


def test_what_is_known_to_be_lost_only_after_the_loss_was_dealt_with_is_taken_again_as_well(home: Home) -> None:
    """The batch had another slot, too, whose answer Redis gave later."""
    home.received(1)
    home.residents.changed_at = 9
    home.intake.advance()
    home.residents.dones[0](False)
    assert home.residents.taken == [1], "not amid whatever said so"
    home.end_turn()
    assert home.residents.taken == [1, 1]
    home.residents.dones[1](True)
    assert home.end_turn() == [(1, 9)]


def test_what_a_purged_node_sent_is_not_taken_again(home: Home) -> None:
    home.received(1)
    home.residents.dones[0](False)
    home.intake.node_gone("a@1")
    home.end_turn()
    assert home.residents.taken == [1]


def test_what_a_purged_node_sent_counts_no_more(home: Home) -> None:
    home.received(1, epoch=11)
    home.received(1, sender="b@1")
    home.intake.node_gone("a@1")
    home.intake.node_gone("b@1")
    home.residents.at = 11
    home.intake.advance()
    assert (home.residents.taken, home.intake.is_holding, home.intake.held_bytes("a@1")) == ([], False, 0)


def test_an_answer_for_a_node_that_is_gone_is_not_sent(home: Home) -> None:
    home.received(1)
    home.intake.node_gone("a@1")
    home.residents.dones[0](True)
    assert home.end_turn() == []


def test_runs_are_put_at_once_and_not_answered(home: Home) -> None:
    home.intake.received("a@1", home.answered, 0, 99, [SlotMessage(b"", 0, b"", 4, b"run")], 3)
    assert (home.residents.runs, home.end_turn()) == ([b"run"], [])


def test_poison_is_logged_and_does_not_come_again(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.residents.fails = True
    home.received(1)
    home.received(0)
    assert home.end_turn() == [(1, 5)]
    assert len(caplog.records) == 2


def test_another_incarnation_of_this_node_counts_everybody_from_one(home: Home) -> None:
    home.received(1)
    home.received(2)
    home.intake.reset()
    home.received(1)
    assert home.residents.taken == [1, 2, 1]


def test_the_expiry_of_a_message_runs_while_it_is_held(home: Home) -> None:
    packet = publication(5, 1, False, b"t", b"", b"\x02\0\0\0\x3c", 60).packet
    home.residents.loading = True
    home.intake.received("a@1", home.answered, 1, 10, [SlotMessage(b"a-source", 1, b"", 5, packet)], 100)
    home.now_s += 7.9
    home.residents.loading = False
    home.intake.advance()
    assert home.residents.packets == [aged(packet, 7)]
