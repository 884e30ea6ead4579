"""Properties: the table against that of the reference client, round trips, and each rule with its statement."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.properties import Properties as PahoProperties

from flockmq.bounds import PACKET_MAX_USER_PROPERTIES
from flockmq.mqtt import frame, properties
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.frame import VARINT_MAX, varint
from flockmq.mqtt.properties import TABLE, WILL, Properties, Property
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.wire import Reader, binary

PAHO_WILL = 99
PAHO_KINDS = {
    properties.U8: "Byte",
    properties.U16: "Two Byte Integer",
    properties.U32: "Four Byte Integer",
    properties.VARINT: "Variable Byte Integer",
    properties.BINARY: "Binary Data",
    properties.TEXT: "UTF-8 Encoded String",
    properties.PAIR: "UTF-8 String Pair",
}
PAHO_NAMES = {identifier: name for name, identifier in PahoProperties(frame.CONNECT).names.items()}

# No wildcards, so that the text is a response topic too.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=20).map(str.encode)


def values(row: Property) -> st.SearchStrategy[object]:
    if row.kind == properties.PAIR:
        return st.lists(st.tuples(texts, texts), min_size=1, max_size=3)
    if row.kind == properties.TEXT:
        return texts
    if row.kind == properties.BINARY:
        return st.binary(max_size=20)
    highest = VARINT_MAX if row.name == "maximum_packet_size" else row.highest  # more is too much for the client
    return st.integers(row.lowest, highest)


@st.composite
def any_properties(draw: st.DrawFn, packet: int) -> Properties:
    made = Properties()
    for row in TABLE:
        sent_by_client = (packet, row.name) != (frame.PUBLISH, "subscription_identifier")
        if packet in row.packets and sent_by_client and draw(st.booleans()):
            setattr(made, row.name, draw(values(row)))
    return made


def as_dict(made: Properties | None) -> dict[str, object]:
    if made is None:
        return {}
    return {row.name: getattr(made, row.name) for row in TABLE if getattr(made, row.name) is not None}


def block(*encoded: bytes) -> bytes:
    whole = b"".join(encoded)
    return varint(len(whole)) + whole


def decode(packet: int, data: bytes) -> Properties | None:
    reader = Reader("packet", data, 0, len(data))
    decoded = properties.decode(packet, reader)
    reader.expect_end()
    return decoded


def test_the_table_is_that_of_the_reference_client() -> None:
    paho = PahoProperties(frame.CONNECT)
    ours = {
        row.identifier: (PAHO_KINDS[row.kind], {PAHO_WILL if p == WILL else p for p in row.packets}) for row in TABLE
    }
    assert ours == {
        identifier: (paho.types[kind], set(packets)) for identifier, (kind, packets) in paho.properties.items()
    }


def test_names_are_those_of_the_specification() -> None:
    plural = {"user_properties": "user_property"}
    assert {row.identifier: plural.get(row.name, row.name) for row in TABLE} == {
        identifier: name.lower().replace(" ", "_") for identifier, name in PAHO_NAMES.items()
    }


@pytest.mark.parametrize("packet", [t for t in range(16) if t not in (frame.PINGREQ, frame.PINGRESP)])
@given(data=st.data())
def test_what_is_encoded_is_read_back_by_us_and_by_the_reference_client(packet: int, data: st.DataObject) -> None:
    made = data.draw(any_properties(packet))
    encoded = block(properties.encode(packet, made))
    assert as_dict(decode(packet, encoded)) == as_dict(made)
    paho, length = PahoProperties(packet or PAHO_WILL).unpack(encoded)
    assert length == len(encoded)
    for row in TABLE:
        value, theirs = getattr(made, row.name), getattr(paho, PAHO_NAMES[row.identifier].replace(" ", ""), None)
        if row.kind == properties.TEXT and value is not None:
            value = value.decode()
        if row.kind == properties.PAIR and value is not None:
            value = [(name.decode(), text.decode()) for name, text in value]
        if row.kind == properties.VARINT and value is not None:
            value = [value]  # a PUBLISH from a server may carry several
        assert theirs == value


@given(data=st.data())
def test_every_cut_of_properties_is_malformed(data: st.DataObject) -> None:
    packet = data.draw(st.sampled_from([frame.CONNECT, frame.PUBLISH, WILL, frame.DISCONNECT]))
    encoded = block(properties.encode(packet, data.draw(any_properties(packet))))
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(PacketError) as refused:
        decode(packet, encoded[:cut])
    assert refused.value.reason == Reason.MALFORMED_PACKET


@given(st.integers(0, 15), st.binary(max_size=60))
def test_whatever_the_bytes_only_packet_error_is_raised(packet: int, data: bytes) -> None:
    for encoded in (data, block(data)):
        with suppress(PacketError):
            decode(packet, encoded)


def test_a_property_is_malformed_in_every_packet_that_may_not_have_it() -> None:
    for packet in range(16):
        for identifier in range(128):
            row = next((row for row in TABLE if row.identifier == identifier), None)
            if row is not None and packet in row.packets:
                continue
            with pytest.raises(PacketError, match=f"property {identifier},") as refused:
                decode(packet, block(bytes([identifier]) + b"\x01" * 8))
            assert (refused.value.reason, refused.value.statement) == (Reason.MALFORMED_PACKET, "section 2.2.2.2")


@pytest.mark.parametrize("row", [row for row in TABLE if row.name != "user_properties"], ids=lambda row: row.name)
def test_a_property_that_comes_twice_is_a_protocol_error(row: Property) -> None:
    packet = min(row.packets - {frame.PUBLISH} or row.packets)
    made = Properties()
    setattr(made, row.name, max(row.lowest, 1) if row.kind <= properties.VARINT else b"x")
    once = properties.encode(packet, made)
    assert decode(packet, block(once)) is not None
    with pytest.raises(PacketError, match=f"{row.name} twice") as refused:
        decode(packet, block(once, once))
    assert (refused.value.reason, refused.value.statement) == (Reason.PROTOCOL_ERROR, f"section {row.section}")


@pytest.mark.parametrize(
    ("packet", "encoded", "reason", "statement"),
    [
        (frame.PUBLISH, b"\x01\x02", Reason.PROTOCOL_ERROR, "section 3.3.2.3.2"),
        (frame.PUBLISH, b"\x23\x00\x00", Reason.TOPIC_ALIAS_INVALID, "MQTT-3.3.2-8"),
        (frame.PUBLISH, b"\x0b\x01", Reason.PROTOCOL_ERROR, "MQTT-3.3.4-6"),
        (frame.PUBLISH, b"\x08" + binary(b"a/+"), Reason.MALFORMED_PACKET, "MQTT-3.3.2-14"),
        (WILL, b"\x08" + binary(b"#"), Reason.MALFORMED_PACKET, "MQTT-3.3.2-14"),
        (WILL, b"\x08" + binary(b""), Reason.MALFORMED_PACKET, "MQTT-4.7.3-1"),
        (frame.PUBLISH, b"\x03" + binary(b"\xff"), Reason.MALFORMED_PACKET, "MQTT-1.5.4-1"),
        (frame.PUBLISH, b"\x03" + binary(b"a\0"), Reason.MALFORMED_PACKET, "MQTT-1.5.4-2"),
        (frame.PUBLISH, b"\x26" + binary(b"a") + binary(b"\0"), Reason.MALFORMED_PACKET, "MQTT-1.5.4-2"),
        (frame.PUBLISH, b"\x26" + binary(b"a"), Reason.MALFORMED_PACKET, "MQTT-4.13.1-1"),
        (frame.SUBSCRIBE, b"\x0b\x00", Reason.PROTOCOL_ERROR, "section 3.8.2.1.2"),
        (frame.SUBSCRIBE, b"\x0b\x81\x00", Reason.MALFORMED_PACKET, "MQTT-1.5.5-1"),
        (frame.SUBSCRIBE, b"\x0b\xff\xff\xff\xff\x01", Reason.MALFORMED_PACKET, "section 1.5.5"),
        (frame.CONNECT, b"\x21\x00\x00", Reason.PROTOCOL_ERROR, "section 3.1.2.11.3"),
        (frame.CONNECT, b"\x27\x00\x00\x00\x00", Reason.PROTOCOL_ERROR, "section 3.1.2.11.4"),
        (frame.CONNECT, b"\x19\x02", Reason.PROTOCOL_ERROR, "section 3.1.2.11.6"),
        (frame.CONNECT, b"\x17\x02", Reason.PROTOCOL_ERROR, "section 3.1.2.11.7"),
        (frame.CONNECT, b"\x91\x00\x00\x00\x00\x01", Reason.MALFORMED_PACKET, "MQTT-1.5.5-1"),
    ],
)
def test_a_value_that_is_not_allowed(packet: int, encoded: bytes, reason: Reason, statement: str) -> None:
    with pytest.raises(PacketError) as refused:
        decode(packet, block(encoded))
    assert (refused.value.reason, refused.value.statement) == (reason, statement)


def test_a_padded_property_length_is_malformed__MQTT_1_5_5_1() -> None:
    with pytest.raises(PacketError) as refused:
        decode(frame.CONNECT, b"\x80\x00")
    assert refused.value.statement == "MQTT-1.5.5-1"


def test_user_properties_keep_their_order_and_repeat_and_are_bounded() -> None:
    pairs = [(b"a", b"1"), (b"b", b""), (b"a", b"1")]
    made = Properties()
    made.user_properties = pairs
    decoded = decode(frame.PUBLISH, block(properties.encode(frame.PUBLISH, made)))
    assert decoded is not None
    assert decoded.user_properties == pairs
    made.user_properties = [(b"", b"")] * PACKET_MAX_USER_PROPERTIES
    assert decode(frame.PUBLISH, block(properties.encode(frame.PUBLISH, made))) is not None
    made.user_properties.append((b"", b""))
    with pytest.raises(PacketError) as refused:
        decode(frame.PUBLISH, block(properties.encode(frame.PUBLISH, made)))
    assert refused.value.reason == Reason.QUOTA_EXCEEDED


def test_subscription_identifiers_stand_before_a_message_s_own_properties() -> None:
    made = Properties()
    made.content_type = b"text"
    encoded = properties.subscription_identifier(7) + properties.subscription_identifier(300)
    paho, _ = PahoProperties(frame.PUBLISH).unpack(block(encoded, properties.encode(frame.PUBLISH, made)))
    assert (paho.SubscriptionIdentifier, paho.ContentType) == ([7, 300], "text")
