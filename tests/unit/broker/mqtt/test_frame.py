"""The fixed header: every type and flag, every length, every cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.mqtt import frame
from flockmq.mqtt.errors import PacketError

VERSIONS = [frame.V31, frame.V311, frame.V5]
FLAGS = {frame.PUBREL: 2, frame.SUBSCRIBE: 2, frame.UNSUBSCRIBE: 2}


@given(st.integers(0, frame.VARINT_MAX))
def test_varint_is_read_back_and_is_as_short_as_it_can_be(number: int) -> None:
    encoded = frame.varint(number)
    assert len(encoded) == 1 + (number > 127) + (number > 16_383) + (number > 2_097_151)
    assert frame.remaining_length(b"\x30" + encoded + b"rest", 1) == (number, 1 + len(encoded))


@pytest.mark.parametrize("number", [-1, frame.VARINT_MAX + 1])
def test_varint_refuses_what_four_bytes_cannot_hold(number: int) -> None:
    with pytest.raises(ValueError, match="Variable Byte Integer"):
        frame.varint(number)


@given(st.integers(0, frame.VARINT_MAX), st.data())
def test_a_cut_remaining_length_is_incomplete_and_no_error(number: int, data: st.DataObject) -> None:
    encoded = frame.varint(number)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    assert frame.remaining_length(encoded[:cut], 0) == (frame.INCOMPLETE, 0)


@pytest.mark.parametrize(("header_bytes", "length"), [(3, 0), (3, 127), (5, 128), (5, 2_097_151)])
def test_a_header_longer_than_its_length_needs_is_refused(header_bytes: int, length: int) -> None:
    frame.check_header(1 + len(frame.varint(length)), length)
    with pytest.raises(PacketError, match="more bytes than it needs"):
        frame.check_header(header_bytes, length)


def test_remaining_length_of_more_than_four_bytes_is_refused() -> None:
    with pytest.raises(PacketError, match="more than four bytes"):
        frame.remaining_length(b"\x80\x80\x80\x80\x01", 0)


@pytest.mark.parametrize("padded", [b"\x82\x00", b"\x82\x80\x00", b"\x82\x80\x80\x00"])
def test_a_padded_remaining_length_is_refused_by_version_5_only__MQTT_1_5_5_1(padded: bytes) -> None:
    assert frame.remaining_length(padded, 0, frame.V311) == (2, len(padded))
    with pytest.raises(PacketError) as refused:
        frame.remaining_length(padded, 0, frame.V5)
    assert refused.value.statement == "MQTT-1.5.5-1"


@pytest.mark.parametrize("version", [frame.V311, frame.V5])
@pytest.mark.parametrize("packet_type", [t for t in range(1, 16) if t != frame.PUBLISH])
def test_reserved_flags_have_their_one_value__MQTT_2_1_3_1(packet_type: int, version: int) -> None:
    reserved_type = packet_type == frame.AUTH and version == frame.V311
    for flags in range(16):
        first_byte = packet_type << 4 | flags
        if flags == FLAGS.get(packet_type, 0) and not reserved_type:
            frame.check_flags(first_byte, version)
        else:
            with pytest.raises(PacketError):
                frame.check_flags(first_byte, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_publish_flags(version: int) -> None:
    for flags in range(16):
        qos, dup = flags >> 1 & 3, flags & 8
        if qos == 3:
            statement = "MQTT-3.3.1-4"
        elif dup and qos == 0 and version != frame.V31:
            statement = "MQTT-3.3.1-2"
        else:
            frame.check_flags(0x30 | flags, version)
            continue
        with pytest.raises(PacketError) as refused:
            frame.check_flags(0x30 | flags, version)
        assert refused.value.statement == statement


@pytest.mark.parametrize("version", [0, *VERSIONS])
def test_packet_type_0_is_reserved(version: int) -> None:
    with pytest.raises(PacketError, match="reserved packet type 0"):
        frame.check_flags(0x00, version)


def test_version_3_1_may_repeat_a_subscribe_with_dup() -> None:
    frame.check_flags(0x8A, frame.V31)


@given(st.integers(0, 255), st.binary(max_size=300))
def test_frame_puts_a_header_before_a_body(first_byte: int, body: bytes) -> None:
    packet = frame.frame(first_byte, body)
    length, start = frame.remaining_length(packet, 1)
    assert (packet[0], length, packet[start:]) == (first_byte, len(body), body)
