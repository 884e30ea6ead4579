"""Integers and strings inside a packet: read to the end of the packet and not beyond."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.frame import VARINT_MAX, varint
from flockmq.mqtt.wire import Reader, binary, check_text, u16, u32


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF_FFFF), st.integers(0, VARINT_MAX), st.binary(max_size=9))
def test_fields_are_read_as_they_were_written(two: int, four: int, variable: int, data: bytes) -> None:
    packet = b"before" + u16(two) + u32(four) + varint(variable) + binary(data)
    reader = Reader("packet", packet + b"after", 6, len(packet))
    assert (reader.u16("two"), reader.u32("four"), reader.varint("variable"), reader.binary("data")) == (
        two,
        four,
        variable,
        data,
    )
    assert reader.at_end()
    reader.expect_end()


@pytest.mark.parametrize("read", [Reader.u8, Reader.u16, Reader.u32, Reader.varint, Reader.binary, Reader.text])
def test_nothing_is_read_past_the_packet(read: object) -> None:
    assert callable(read)
    reader = Reader("PUBLISH", b"\x80\x80\x80\x80\x80", 1, 1)
    with pytest.raises(PacketError, match="PUBLISH cut short in the field"):
        read(reader, "the field")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_all_other_text_is_allowed(text: str) -> None:
    check_text(text.encode(), "text")


@given(st.binary(max_size=8))
def test_text_is_what_a_strict_decoder_takes_without_nul__MQTT_1_5_4_1_and_2(data: bytes) -> None:
    allowed = data.decode(errors="replace").encode() == data and b"\0" not in data
    if allowed:
        check_text(data, "text")
    else:
        with pytest.raises(PacketError):
            check_text(data, "text")
