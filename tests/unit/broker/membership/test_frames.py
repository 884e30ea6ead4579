from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.delivery.batch_queue import size_of
from flockmq.delivery.slot_message import SlotMessage
from flockmq.membership import frames
from flockmq.membership.frames import FrameError, FrameReader

BODIES = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=8)


@given(BODIES, st.lists(st.integers(1, 30), max_size=20))
def test_frames_come_out_as_they_went_in_however_they_are_cut(sent: list[tuple[int, bytes]], cuts: list[int]) -> None:
    wire = b"".join(frames.frame(kind, body) for kind, body in sent)
    reader = FrameReader(40)
    came: list[tuple[int, bytes]] = []
    for cut in cuts:
        came.extend(reader.feed(wire[:cut]))
        wire = wire[cut:]
    came.extend(reader.feed(wire))
    assert came == sent


def test_a_frame_above_the_bound_is_refused_before_its_body_comes() -> None:
    header = frames.frame(frames.CONTROL, bytes(41))[:5]
    with pytest.raises(FrameError, match="a frame of 41 bytes where at most 40 are allowed"):
        list(FrameReader(40).feed(header))


def test_the_bound_may_be_raised_between_two_frames_of_one_read() -> None:
    reader = FrameReader(10)
    wire = frames.frame(frames.GREETING, b"proof") + frames.frame(frames.CONTROL, bytes(100))
    came = reader.feed(wire)
    assert next(came) == (frames.GREETING, b"proof")
    reader.max_body_bytes = 1000
    assert next(came) == (frames.CONTROL, bytes(100))


@given(st.integers(0, 2**64 - 1), st.sampled_from((4, 5)), st.binary(max_size=100))
def test_message_frames_carry_number_version_and_chunk(number: int, version: int, chunk: bytes) -> None:
    wire = frames.numbered_header(number, version, len(chunk)) + chunk
    wire += frames.forward_header(version, len(chunk)) + chunk
    wire += frames.item_header(number % 2**32, len(chunk)) + chunk
    wire += frames.tunnel_header(number % 2**32, len(chunk)) + chunk
    (kind, numbered), (other, run), (third, item), (fourth, tunnelled) = FrameReader(200).feed(wire)
    assert (kind, other, third, fourth) == (frames.NUMBERED, frames.FORWARD, frames.ITEM, frames.TUNNEL)
    assert frames.parse_numbered(numbered) == (number, version, chunk)
    assert frames.parse_forward(run) == (version, chunk)
    assert frames.parse_item(item) == frames.parse_tunnel(tunnelled) == (number % 2**32, chunk)


LETTERS = st.lists(
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


def fields(letters: list[SlotMessage]) -> list[tuple[bytes, int, bytes, int, bytes]]:
    return [(letter.source, letter.number, letter.publisher, letter.version, letter.packet) for letter in letters]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), LETTERS)
def test_letters_come_as_they_went(number: int, epoch: int, letters: list[SlotMessage]) -> None:
    parts = frames.courier_frame(number, epoch, letters, sum(map(size_of, letters)))
    ((kind, body),) = FrameReader(2000).feed(b"".join(parts))
    assert kind == frames.COURIER
    came_number, came_epoch, came = frames.parse_courier(body)
    assert (came_number, came_epoch, fields(came)) == (number, epoch, fields(letters))


@given(LETTERS, st.data())
def test_letters_that_are_cut_are_an_error_or_fewer_letters(letters: list[SlotMessage], data: st.DataObject) -> None:
    body = b"".join(frames.courier_frame(1, 2, letters, sum(map(size_of, letters))))[5:]
    cut = body[: data.draw(st.integers(0, len(body)))]
    try:
        came = frames.parse_courier(cut)[2]
    except FrameError:
        return
    assert fields(came) == fields(letters[: len(came)])


PARSERS = (
    *(frames.parse_forward, frames.parse_numbered, frames.parse_item, frames.parse_tunnel, frames.parse_control),
    *(frames.parse_courier, frames.parse_addressed),
)


@pytest.mark.parametrize("parse", PARSERS)
def test_what_is_too_short_is_an_error(parse: Callable[[bytes], object]) -> None:
    with pytest.raises(FrameError):
        parse(b"")


def test_fields_that_a_later_version_appends_are_passed_over() -> None:
    assert frames.parse_control(b"\x93\x0a\x07\xa5later") == frames.Accepted(7)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_control_frame_or_a_frame_error(body: bytes) -> None:
    try:
        message = frames.parse_control(body)
    except FrameError:
        return
    assert isinstance(message, frames.Control)


@pytest.mark.parametrize("slots", [[7], [0, 1023], list(range(64)), list(range(0, 1024, 3)), list(range(1024))])
def test_letters_say_for_which_slots_they_are(slots: list[int]) -> None:
    letters = [SlotMessage(b"source--", n, b"publisher", 5, b"packet", slots) for n in (1, 2)]
    parts = frames.addressed_frame(3, 4, letters, sum(map(size_of, letters)))
    ((kind, body),) = FrameReader(1 << 20).feed(b"".join(parts))
    assert kind == frames.ADDRESSED
    number, epoch, came = frames.parse_addressed(body)
    assert (number, epoch) == (3, 4)
    assert [(letter.slots, letter.number, letter.packet) for letter in came] == [(slots, n, b"packet") for n in (1, 2)]
    for end in range(len(body)):
        with pytest.raises(FrameError):
            frames.parse_addressed(body[:end])
    unaddressed = body[:16] + bytes(4) + body[20 + int.from_bytes(body[16:20], "big") :]
    with pytest.raises(FrameError, match="no address"):
        frames.parse_addressed(unaddressed)


@given(st.binary(max_size=60))
def test_any_bytes_are_addressed_letters_or_a_frame_error(body: bytes) -> None:
    try:
        letters = frames.parse_addressed(body)[2]
    except FrameError:
        return
    assert all(letter.slots for letter in letters)
