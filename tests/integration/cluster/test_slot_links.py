"""Messages for durable sessions, over links that are cut, to cores that come and go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from flockmq.bounds import SLOTS
from flockmq.delivery.slot_acceptance import Deduplicator
from flockmq.delivery.slot_receiver import SlotReceiver
from flockmq.membership.slot_table import TAKE, SlotMove
from flockmq.mqtt.message import publication
from flockmq.routing.slots import SlotMessage
from flockmq.routing.targets import SlotSet

from .conftest import Node, Nodes, until

Stored = dict[int, list[int]]


class Sessions:
    """Sessions of one core: durable a moment later, in a store that all cores share. Each slot wants every message."""

    def __init__(self, node: Node, stored: Stored, marks: dict[int, Deduplicator]) -> None:
        self.cluster = node.cluster
        self.stored = stored
        self.marks = marks
        self.loop = asyncio.get_running_loop()
        self.gained: dict[int, int] = {}
        self.changed_at = 0
        self.receiver = SlotReceiver(self, node.cluster.nodes_table.__contains__, self.loop.call_soon, self.loop.time)
        node.delivery.slots.receiver = self.receiver
        node.cluster.slots.listen(TAKE, self.moved)
        self.moved([SlotMove(slot, "", owner) for slot, owner in enumerate(node.cluster.slots.owners)])

    def moved(self, moves: list[SlotMove]) -> None:
        self.changed_at = self.epoch()
        for slot, _, owner in moves:
            self.gained.pop(slot, None)
            if owner == self.cluster.incarnation:
                self.gained[slot] = self.changed_at
        self.loop.call_soon(self.receiver.advance)

    def epoch(self) -> int:
        return self.cluster.slots.epoch

    def view(self) -> int:
        return self.changed_at

    def is_loading(self) -> bool:
        return False

    is_changing = is_loading
    is_holding = False

    def advance(self) -> None: ...

    def take(self, messages: Sequence[SlotMessage], epoch: int, sender: str, done: Callable[[bool], None]) -> None:
        for message in messages:
            for slot in WANTED & self.gained.keys():
                if self.gained[slot] <= epoch and self.marks[slot].is_new(message.source, message.number):
                    self.marks[slot].set(message.source, message.number)
                    self.stored[slot].append(int(message.packet[-6:]))
        self.loop.call_later(0.001, done, True)

    def take_runs(self, messages: Sequence[SlotMessage]) -> None:
        for message in messages:
            for slot in WANTED & self.gained.keys():
                self.stored[slot].append(int(message.packet[-6:]))


WANTED = frozenset(range(0, SLOTS, 100))


@pytest.fixture
async def cores(nodes: Nodes) -> list[Node]:
    return [await nodes.start(f"core-{number}", "core") for number in range(3)]


def with_sessions(cores: list[Node]) -> Stored:
    stored: Stored = {slot: [] for slot in WANTED}
    marks = {slot: Deduplicator() for slot in WANTED}
    for core in cores:
        Sessions(core, stored, marks)
    return stored


@pytest.mark.parametrize("seed", range(2))
async def test_cut_links_and_a_lost_core_lose_double_and_reorder_nothing(
    nodes: Nodes, cores: list[Node], seed: int
) -> None:
    sender = await nodes.start("replicant-0", "replicant")
    await nodes.settled()
    stored = with_sessions(cores)
    chance = random.Random(seed)
    accepted: list[int] = []
    slots = SlotSet(sorted(WANTED))
    for n in range(1000):
        message = publication(4, 1, False, b"t", b"%06d" % n, b"")
        told = partial(accepted.append, n)
        assert sender.delivery.slots.sender.put_acknowledged(slots, message, told) == 1
        if chance.random() < 0.3:
            sender.flush()
            await asyncio.sleep(0)
        if chance.random() < 0.01:
            chance.choice([sender, *cores]).cut_links()
        if n == 500:
            await nodes.crash(cores.pop(0))
        if chance.random() < 0.02:
            await asyncio.sleep(0.01)
    sender.flush()
    await until(lambda: len(accepted) == 1000)
    assert stored == {slot: list(range(1000)) for slot in WANTED}
    assert sender.delivery.slots.sender.waiting_messages == 0


async def test_a_core_brings_to_itself_and_to_others_and_runs_come_too(nodes: Nodes, cores: list[Node]) -> None:
    await nodes.settled()
    stored = with_sessions(cores)
    slot_sender = cores[0].delivery.slots.sender
    slots = SlotSet(sorted(WANTED))
    accepted = asyncio.Event()
    assert slot_sender.put_acknowledged(slots, publication(4, 1, False, b"t", b"000001", b""), accepted.set) == 1
    cores[0].flush()
    await asyncio.wait_for(accepted.wait(), 10)
    slot_sender.put_run(slots, 4, publication(4, 0, False, b"t", b"000002", b"").packet, b"")
    cores[0].flush()
    await until(lambda: stored == {slot: [1, 2] for slot in WANTED})
