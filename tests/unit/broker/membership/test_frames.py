from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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


@given(st.integers(0, 2**32 - 1), st.binary(max_size=100))
def test_items_and_tunnels_carry_an_id_and_a_chunk(number: int, chunk: bytes) -> None:
    wire = (
        frames.id_header(frames.ITEM, number, len(chunk))
        + chunk
        + frames.id_header(frames.TUNNEL, number, len(chunk))
        + chunk
    )
    (kind, item), (other, tunnelled) = FrameReader(200).feed(wire)
    assert (kind, other) == (frames.ITEM, frames.TUNNEL)
    assert frames.parse_id(item) == frames.parse_id(tunnelled) == (number, chunk)


@pytest.mark.parametrize("parse", [frames.parse_id, frames.parse_control])
def test_what_is_too_short_is_an_error(parse: Callable[[bytes], object]) -> None:
    with pytest.raises(FrameError):
        parse(b"")


def test_fields_that_a_later_version_appends_are_passed_over() -> None:
    assert frames.parse_control(b"\x93\x0a\x07\xa5later") == frames.Accepted(7)


@given(st.binary(max_size=60))
@example(b"\x94\x02\x00\xa2\x00\x80")  # a text that is no UTF-8
def test_any_bytes_are_a_control_frame_or_a_frame_error(body: bytes) -> None:
    try:
        message = frames.parse_control(body)
    except FrameError:
        return
    assert isinstance(message, frames.Control)
