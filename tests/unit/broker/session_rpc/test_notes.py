"""What leaves in one turn, in which order, and what is kept where there is no link."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

import pytest

from flockmq import bounds
from flockmq.delivery.session_packets import ClientPackets
from flockmq.membership.cluster import Cluster
from flockmq.session_rpc import messages
from flockmq.session_rpc.notes import Notes

THERE = "core@1"


class Links:
    """`up` says whether anything can be told."""

    def __init__(self) -> None:
        self.incarnation = "here@1"
        self.up = True
        self.room = 1 << 30
        self.nodes_table = {THERE: None}
        self.told: list[tuple[str, str]] = []
        self.frames: list[list[tuple[int, bytes]]] = []
        self.unsent: list[tuple[str, str]] = []
        self.behind: list[str] = []
        self.cuts: list[str] = []

    def cut(self, incarnation: str) -> None:
        self.cuts.append(incarnation)

    def notify(self, incarnation: str, method: str, body: bytes) -> bool:
        if not self.up or self.is_backed_up(incarnation):
            return False
        self.told.append((incarnation, method))
        self.room -= len(body)
        return True

    def is_linked(self, incarnation: str) -> bool:
        return self.up

    def is_backed_up(self, incarnation: str) -> bool:
        return self.room <= 0

    def send(self, incarnation: str, parts: list[bytes], size_bytes: int) -> bool:
        if self.up:
            frame = b"".join(parts)
            assert size_bytes == len(frame)
            self.told.append((incarnation, "delivery"))
            self.frames.append(list(messages.deliveries(frame)))
        return self.up


class Sending:
    def __init__(self) -> None:
        self.links = Links()
        self.notes = Notes(cast(Cluster, self.links), cast(ClientPackets, self.links))
        self.notes.on_unsent = lambda to, method: self.links.unsent.append((to, method))
        self.notes.on_deliveries_failed = self.links.behind.append


@pytest.fixture
async def sending() -> Sending:
    return Sending()


async def test_the_notes_of_a_turn_leave_in_their_order_with_deliveries_behind(sending: Sending) -> None:
    sending.notes.deliver(THERE, 1, b"packet")
    for method in reversed(messages.ORDER):
        sending.notes.send(THERE, method, (1,))
    assert sending.links.told == []
    await asyncio.sleep(0)
    assert [method for _, method in sending.links.told] == [*messages.ORDER, "delivery"]


async def test_one_note_carries_what_a_turn_gathered(sending: Sending) -> None:
    for number in range(bounds.NOTES_BATCH_MAX + 1):
        sending.notes.send(THERE, messages.REPORT, (number,))
    await asyncio.sleep(0)
    assert sending.links.told == [(THERE, messages.REPORT)] * 2


async def test_what_can_not_be_told_waits_for_a_link(sending: Sending) -> None:
    sending.links.up = False
    sending.notes.send(THERE, messages.DETACH, (1,))
    await asyncio.sleep(0)
    assert sending.links.unsent == []
    sending.links.up = True
    sending.notes.schedule()
    await asyncio.sleep(0)
    assert sending.links.told == [(THERE, messages.DETACH)]
    sending.notes.schedule()
    await asyncio.sleep(0)
    assert len(sending.links.told) == 1


@pytest.mark.parametrize("method", [messages.ATTACH, messages.ASK, messages.REPORT, messages.REGISTER])
async def test_what_is_asked_again_is_not_kept(sending: Sending, method: str) -> None:
    sending.links.up = False
    sending.notes.send(THERE, method, (1,))
    await asyncio.sleep(0)
    assert sending.links.unsent == [(THERE, method)]
    sending.links.up = True
    sending.notes.schedule()
    await asyncio.sleep(0)
    assert sending.links.told == []


async def test_lost_deliveries_are_said_to_be_lost(sending: Sending) -> None:
    sending.links.up = False
    sending.notes.deliver(THERE, 1, b"packet")
    await asyncio.sleep(0)
    assert sending.links.behind == [THERE]
    sending.links.up = True
    sending.notes.deliver(THERE, 1, b"again")
    await asyncio.sleep(0)
    assert sending.links.frames == [[(1, b"again")]]


async def test_no_frame_is_larger_than_links_take(sending: Sending) -> None:
    chunk = bytes(bounds.LINK_FORWARD_FRAME_BYTES // 2 - 100)
    for token in range(3):
        sending.notes.deliver(THERE, token, chunk)
    await asyncio.sleep(0)
    assert [[token for token, _ in frame] for frame in sending.links.frames] == [[0, 1], [2]]


async def test_a_node_that_is_gone_is_told_nothing(sending: Sending) -> None:
    sending.notes.send(THERE, messages.KICK, (1,))
    sending.notes.send("other@1", messages.KICK, (1,))
    sending.notes.deliver(THERE, 1, b"packet")
    sending.notes.forget(THERE)
    await asyncio.sleep(0)
    assert sending.links.told == [("other@1", messages.KICK)]


async def test_notes_that_wait_are_bounded(sending: Sending) -> None:
    sending.notes.waiting_max = 10
    sending.notes.batch_max = 1
    sending.links.up = False
    for number in range(20):
        sending.notes.send(THERE, messages.KICK, (number,))
    await asyncio.sleep(0)
    sending.links.up = True
    sending.notes.schedule()
    await asyncio.sleep(0)
    assert len(sending.links.told) == 10


async def test_what_waits_for_a_node_goes_with_it(sending: Sending) -> None:
    """Also what is put when it is gone already."""
    sending.links.up = False
    sending.notes.send(THERE, messages.DETACH, (1,))
    await asyncio.sleep(0)
    sending.links.nodes_table.clear()
    sending.notes.send("gone@1", messages.KICK, (2,))
    sending.notes.schedule()
    await asyncio.sleep(0)
    sending.links.up = True
    sending.notes.schedule()
    await asyncio.sleep(0)
    assert sending.links.told == []


async def test_beyond_the_bound_only_what_the_next_link_mends_is_dropped(sending: Sending) -> None:
    sending.notes.waiting_max = 1
    sending.notes.batch_max = 1
    kinds = {messages.ANSWER: 1, messages.KICK: 1, messages.REPLY: 1, messages.DETACH: 2, messages.OVERFLOW: 2}
    sending.links.up = False
    for method in kinds:
        for number in range(2):
            sending.notes.send(THERE, method, (number,))
    await asyncio.sleep(0)
    assert sending.notes.dropped == 3
    sending.links.up = True
    sending.notes.schedule()
    await asyncio.sleep(0)
    assert Counter(method for _, method in sending.links.told) == kinds


async def test_a_link_that_takes_too_little_is_cut_when_something_was_dropped(sending: Sending) -> None:
    sending.notes.waiting_max = 1
    sending.links.room = 0
    sending.notes.send(THERE, messages.REPLY, (1,))
    await asyncio.sleep(0)
    assert sending.links.cuts == []
    sending.notes.send(THERE, messages.REPLY, (2,))
    await asyncio.sleep(0)
    assert sending.links.cuts == [THERE]
    sending.notes.schedule()
    await asyncio.sleep(0)
    assert sending.links.cuts == [THERE]


async def test_notes_leave_as_fast_as_the_link_takes_them_and_in_their_order(sending: Sending) -> None:
    """An owner went, and thousands of clients with large wills are registered at the next one."""
    sending.notes.retry_s = 0.0
    sending.notes.batch_max = 2
    for number in range(10):
        sending.notes.send(THERE, messages.REGISTER, (number, bytes(1000)))
    sending.notes.send(THERE, messages.ASK, (1,))
    sending.notes.deliver(THERE, 1, b"packet")
    sending.links.room = 5000
    await asyncio.sleep(0)
    assert sending.links.told == [(THERE, messages.REGISTER)] * 3
    assert sending.links.behind == [THERE], "what a session sends comes behind, again"
    assert sending.notes.waits(THERE)
    sending.notes.send(THERE, messages.KICK, (1,))
    sending.links.room = 1 << 30
    for _ in range(5):
        await asyncio.sleep(0)
    assert not sending.notes.waits(THERE)
    assert [method for _, method in sending.links.told[3:]] == [
        messages.KICK,
        messages.REGISTER,
        messages.REGISTER,
        messages.ASK,
    ]


async def test_one_full_link_holds_up_no_other_node(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending.links, "is_backed_up", lambda incarnation: incarnation == THERE)
    for to in (THERE, "other@1"):
        sending.notes.send(to, messages.REGISTER, (1,))
    await asyncio.sleep(0)
    assert sending.links.told == [("other@1", messages.REGISTER)]
    sending.notes.stop()
