"""Frames that carry messages come as they went, and what is cut is an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.delivery import frames
from flockmq.delivery.batch_queue import size_of
from flockmq.membership.frames import FrameError, FrameReader
from flockmq.routing.slots import SlotMessage


@given(st.integers(0, 2**64 - 1), st.sampled_from((4, 5)), st.binary(max_size=100))
def test_message_frames_carry_number_version_and_chunk(number: int, version: int, chunk: bytes) -> None:
    wire = frames.numbered_header(number, version, len(chunk)) + chunk + frames.forward_header(version, len(chunk))
    (kind, numbered), (other, run) = FrameReader(200).feed(wire + chunk)
    assert (kind, other) == (frames.NUMBERED, frames.FORWARD)
    assert frames.parse_numbered(numbered) == (number, version, chunk)
    assert frames.parse_forward(run) == (version, chunk)


MESSAGES = st.lists(
    st.builds(
        SlotMessage,
        st.binary(min_size=8, max_size=8),
        st.integers(0, 2**64 - 1),
        st.binary(max_size=20),
        st.sampled_from((4, 5)),
        st.binary(max_size=100),
    ),
    max_size=5,
)


def fields(messages: list[SlotMessage]) -> list[tuple[bytes, int, bytes, int, bytes]]:
    return [
        (message.source, message.number, message.publisher, message.version, message.packet) for message in messages
    ]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), MESSAGES)
def test_messages_come_as_they_went(number: int, epoch: int, messages: list[SlotMessage]) -> None:
    parts = frames.batch_frame(number, epoch, messages, sum(map(size_of, messages)))
    ((kind, body),) = FrameReader(2000).feed(b"".join(parts))
    assert kind == frames.BATCH
    came_number, came_epoch, came = frames.parse_batch(body)
    assert (came_number, came_epoch, fields(came)) == (number, epoch, fields(messages))


@given(MESSAGES, st.data())
def test_messages_that_are_cut_are_an_error_or_fewer_messages(messages: list[SlotMessage], data: st.DataObject) -> None:
    body = b"".join(frames.batch_frame(1, 2, messages, sum(map(size_of, messages))))[5:]
    cut = body[: data.draw(st.integers(0, len(body)))]
    try:
        came = frames.parse_batch(cut)[2]
    except FrameError:
        return
    assert fields(came) == fields(messages[: len(came)])


PARSERS = (frames.parse_forward, frames.parse_numbered, frames.parse_batch, frames.parse_addressed)


@pytest.mark.parametrize("parse", PARSERS)
def test_what_is_too_short_is_an_error(parse: Callable[[bytes], object]) -> None:
    with pytest.raises(FrameError):
        parse(b"")


@pytest.mark.parametrize("slots", [[7], [0, 1023], list(range(64)), list(range(0, 1024, 3)), list(range(1024))])
def test_messages_say_for_which_slots_they_are(slots: list[int]) -> None:
    messages = [SlotMessage(b"source--", n, b"publisher", 5, b"packet", slots) for n in (1, 2)]
    parts = frames.addressed_frame(3, 4, messages, sum(map(size_of, messages)))
    ((kind, body),) = FrameReader(1 << 20).feed(b"".join(parts))
    assert kind == frames.ADDRESSED
    number, epoch, came = frames.parse_addressed(body)
    assert (number, epoch) == (3, 4)
    assert [(message.slots, message.number, message.packet) for message in came] == [
        (slots, n, b"packet") for n in (1, 2)
    ]
    for end in range(len(body)):
        with pytest.raises(FrameError):
            frames.parse_addressed(body[:end])
    unaddressed = body[:16] + bytes(4) + body[20 + int.from_bytes(body[16:20], "big") :]
    with pytest.raises(FrameError, match="no address"):
        frames.parse_addressed(unaddressed)


@given(st.binary(max_size=60))
def test_any_bytes_are_addressed_messages_or_a_frame_error(body: bytes) -> None:
    try:
        messages = frames.parse_addressed(body)[2]
    except FrameError:
        return
    assert all(message.slots for message in messages)
