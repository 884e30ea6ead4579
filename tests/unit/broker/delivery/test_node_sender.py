"""Numbering and resending, with a link that is a list of frames and may be cut between any two of them."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq import bounds
from flockmq.delivery.frames import FORWARD, parse_forward, parse_numbered
from flockmq.delivery.node_forwarding import ReceivedSequences
from flockmq.delivery.node_sender import NodeSender
from flockmq.membership.frames import FrameReader
from flockmq.routing.sink import CONGESTED, FLOWING, Sink

ACTIONS = st.lists(st.sampled_from(["message", "message", "flush", "carry", "accept", "cut", "connect"]), max_size=80)


class Wire:
    """What was sent and has not arrived."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.data_bytes = 0

    def send_data(self, frame: list[bytes], frame_bytes: int) -> None:
        assert sum(map(len, frame[1:])) == frame_bytes
        self.frames.append(b"".join(frame))
        self.data_bytes += frame_bytes

    def carry(self) -> tuple[int, bytes]:
        ((kind, body),) = FrameReader(bounds.LINK_FRAME_MAX_BYTES).feed(self.frames.popleft())
        return kind, body


def end_turn(turn: list[Sink]) -> None:
    for sink in turn:
        sink.dirty = False
        sink.flush()
    turn.clear()


@settings(max_examples=200)
@given(ACTIONS)
def test_whatever_is_cut_each_message_is_accepted_once_and_in_order(actions: list[str]) -> None:
    async def play() -> None:
        turn: list[Sink] = []
        sink = NodeSender(turn, "b@00000001", lambda _: None)
        inbox = ReceivedSequences()
        wire: Wire | None = None
        sent, arrived, accepted = 0, b"", []

        def carry(wire: Wire) -> None:
            nonlocal arrived
            number, version, chunk = parse_numbered(wire.carry()[1])
            assert version == 4 + int(chunk[:3]) % 2
            if inbox.accept("a@00000001", number):
                arrived += chunk

        for action in [*actions, "flush", "cut", "connect"]:
            if action == "message":
                assert sink.put_acknowledged(4 + sent % 2, b"%03d" % sent, lambda n=sent: accepted.append(n))  # type: ignore[misc]
                sent += 1
            elif action == "flush":
                end_turn(turn)
            elif action == "carry" and wire is not None and wire.frames:
                carry(wire)
            elif action == "accept" and wire is not None:
                sink.accepted(inbox.accepted("a@00000001"))
            elif action == "cut" and wire is not None:
                wire = None
                sink.disconnected()
            elif action == "connect" and wire is None:
                wire = Wire()
                sink.connected(wire, inbox.accepted("a@00000001"))
        while wire is not None and wire.frames:
            carry(wire)
        sink.accepted(inbox.accepted("a@00000001"))
        assert arrived == b"".join(b"%03d" % n for n in range(sent))
        assert accepted == list(range(sent))
        assert (sink.resend_bytes, sink.resend_messages) == (0, 0)
        sink.purge()

    asyncio.run(play())


@pytest.mark.parametrize("cut", [False, True])
async def test_a_node_whose_row_was_away_for_a_moment_gets_what_comes_then(cut: bool) -> None:
    """It isn't another incarnation, so it goes on with the numbers that it accepted."""
    turn: list[Sink] = []
    inbox, wire, arrived = ReceivedSequences(), Wire(), b""

    def carry(wire: Wire) -> None:
        nonlocal arrived
        number, _, chunk = parse_numbered(wire.carry()[1])
        if inbox.accept("a@00000001", number):
            arrived += chunk

    sink = NodeSender(turn, "b@00000001", lambda _: None)
    sink.connected(wire, 0)
    for payload in (b"1", b"2", b"3"):
        sink.put_acknowledged(5, payload, lambda: None)
        end_turn(turn)
    carry(wire)
    sink.accepted(1)
    carry(wire)
    sink.put_acknowledged(5, b"4", lambda: None)
    sink.purge()
    sink.reinstate()
    wire = Wire() if cut else wire
    sink.connected(wire, inbox.accepted("a@00000001") if cut else 0)
    sink.put_acknowledged(5, b"5", lambda: None)
    end_turn(turn)
    while wire.frames:
        carry(wire)
    assert arrived == (b"125" if cut else b"12345")
    sink.purge()


async def test_publishers_wait_no_longer_than_forward_wait() -> None:
    turn: list[Sink] = []
    sink = NodeSender(turn, "b@00000001", lambda _: None)
    waited = asyncio.Event()
    assert sink.put_acknowledged(5, b"message", waited.set)
    end_turn(turn)
    await asyncio.wait_for(waited.wait(), 10)
    assert sink.resend_messages == 1
    wire = Wire()
    sink.connected(wire, 0)
    assert parse_numbered(wire.carry()[1]) == (1, 5, b"message")
    sink.accepted(1)
    assert sink.resend_messages == 0
    sink.purge()


async def test_a_link_is_asked_for_when_there_is_something_to_forward() -> None:
    turn: list[Sink] = []
    wanted: list[str] = []
    sink = NodeSender(turn, "b@00000001", wanted.append)
    assert wanted == []
    sink.put_run(4, b"run")
    end_turn(turn)
    assert wanted == ["b@00000001"]
    wire = Wire()
    sink.connected(wire, 0)
    kind, body = wire.carry()
    assert (kind, parse_forward(body)) == (FORWARD, (4, b"run"))


async def test_runs_of_one_turn_are_one_frame_a_version_and_long_ones_are_cut() -> None:
    turn: list[Sink] = []
    sink = NodeSender(turn, "b@00000001", lambda _: None)
    wire = Wire()
    sink.connected(wire, 0)
    for n in range(10):
        sink.put_run(4 + n % 2, b"%d" % n)
    end_turn(turn)
    assert [parse_forward(wire.carry()[1]) for _ in range(2)] == [(4, b"02468"), (5, b"13579")]
    chunk = bytes(bounds.LINK_FORWARD_FRAME_BYTES // 2 + 1)
    for _ in range(3):
        sink.put_run(5, chunk)
    end_turn(turn)
    assert len(wire.frames) == 3


async def test_full_buffers_drop_what_may_be_lost_and_refuse_what_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PEER_RESEND_MAX_BYTES", 10)
    monkeypatch.setattr(bounds, "PEER_FORWARD_MAX_BYTES", 10)
    turn: list[Sink] = []
    sink = NodeSender(turn, "b@00000001", lambda _: None)
    released: list[int] = []
    assert sink.put_acknowledged(5, bytes(10), lambda: released.append(1))
    assert not sink.put_acknowledged(5, b"x", lambda: released.append(2))
    sink.put_run(5, bytes(11))
    end_turn(turn)
    assert sink.dropped == 11
    sink.purge()
    assert released == [1]
    assert sink.put_acknowledged(5, b"to nobody", lambda: released.append(3))
    assert released == [1, 3]


async def test_a_full_buffer_takes_what_the_log_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PEER_RESEND_MAX_BYTES", 10)
    turn: list[Sink] = []
    sink = NodeSender(turn, "b@00000001", lambda _: None)
    released: list[int] = []
    assert sink.put_acknowledged(5, bytes(10), lambda: released.append(1))
    sink.put_logged(5, b"x", lambda: released.append(2))
    assert sink.resend_bytes == 11
    end_turn(turn)
    sink.accepted(sink._last_number)
    assert (released, sink.resend_bytes) == ([1, 2], 0)
    sink.purge()
    sink.put_logged(5, b"to nobody", lambda: released.append(3))
    assert released == [1, 2, 3]


async def test_a_peer_is_congested_until_its_link_has_room() -> None:
    turn: list[Sink] = []
    sink = NodeSender(turn, "b@00000001", lambda _: None)
    drained: list[NodeSender] = []
    sink.on_drained = drained.append
    wire = Wire()
    sink.connected(wire, 0)
    wire.data_bytes = bounds.PEER_BLOCKED_BYTES + 1
    sink.put_run(5, b"run")
    end_turn(turn)
    assert sink.flow == CONGESTED
    wire.data_bytes = bounds.PEER_DRAINED_BYTES
    sink.room()
    assert sink.flow == CONGESTED
    wire.data_bytes -= 1
    sink.room()
    assert sink.flow == FLOWING
    assert drained == [sink]


async def test_what_no_publisher_waits_for_waits_until_the_node_has_it_or_is_gone() -> None:
    turn: list[Sink] = []
    sink = NodeSender(turn, "b@00000001", lambda _: None)
    waited = asyncio.Event()
    heard: list[str] = []
    assert sink.put_until_accepted(5, b"1", lambda: heard.append("1"))
    assert sink.put_acknowledged(5, b"2", waited.set)
    end_turn(turn)
    await asyncio.wait_for(waited.wait(), 10)
    assert heard == []
    sink.accepted(1)
    assert heard == ["1"]
    assert sink.put_until_accepted(5, b"3", lambda: heard.append("3"))
    sink.purge()
    assert heard == ["1", "3"]


async def test_a_node_that_may_be_purged_lets_publishers_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FORWARD_WAIT_S", 0.01)
    turn: list[Sink] = []
    fenced, looked = [True], asyncio.Event()

    def is_fenced() -> bool:
        looked.set()
        return fenced[0]

    sink = NodeSender(turn, "b@00000001", lambda _: None, is_fenced)
    released = asyncio.Event()
    assert sink.put_acknowledged(5, b"message", released.set)
    end_turn(turn)
    await asyncio.wait_for(looked.wait(), 10)
    assert not released.is_set()
    fenced[0] = False
    await asyncio.wait_for(released.wait(), 10)
    sink.purge()
