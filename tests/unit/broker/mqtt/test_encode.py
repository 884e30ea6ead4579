"""What a server sends, byte by byte where that is short, and as the reference client reads it where it isn't."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.properties import Properties as PahoProperties

from flockmq.mqtt import encode, frame, properties
from flockmq.mqtt.frame import V5, V31, V311
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason


def explained(text: bytes) -> Properties:
    made = Properties()
    made.reason_string = text
    return made


@pytest.mark.parametrize(
    ("packet", "encoded"),
    [
        (encode.PINGREQ, b"\xc0\x00"),
        (encode.PINGRESP, b"\xd0\x00"),
        (encode.connack(V31, Reason.SUCCESS, session_present=True), b"\x20\x02\x00\x00"),
        (encode.connack(V311, Reason.SUCCESS, session_present=True), b"\x20\x02\x01\x00"),
        (encode.connack(V311, Reason.NOT_AUTHORIZED, session_present=True), b"\x20\x02\x00\x05"),
        (encode.connack(V311, Reason.MALFORMED_PACKET), b""),
        (encode.connack(V5, Reason.SUCCESS, session_present=True), b"\x20\x03\x01\x00\x00"),
        (encode.connack(V5, Reason.BANNED, session_present=True), b"\x20\x03\x00\x8a\x00"),
        (encode.pub_ack(frame.PUBACK, V311, 0x1234, Reason.QUOTA_EXCEEDED), b"\x40\x02\x12\x34"),
        (encode.pub_ack(frame.PUBREC, V5, 0x1234), b"\x50\x02\x12\x34"),
        (encode.pub_ack(frame.PUBREL, V5, 1, Reason.PACKET_IDENTIFIER_NOT_FOUND), b"\x62\x03\x00\x01\x92"),
        (encode.pub_ack(frame.PUBCOMP, V5, 1, 0, explained(b"x")), b"\x70\x08\x00\x01\x00\x04\x1f\x00\x01x"),
        (encode.suback(V31, 1, [2, 0x87]), b"\x90\x04\x00\x01\x02\x80"),
        (encode.suback(V5, 1, [2, 0x87]), b"\x90\x05\x00\x01\x00\x02\x87"),
        (encode.unsuback(V311, 0x0102, [0]), b"\xb0\x02\x01\x02"),
        (encode.unsuback(V5, 1, [0, 0x11]), b"\xb0\x05\x00\x01\x00\x00\x11"),
        (encode.disconnect(V311), b"\xe0\x00"),
        (encode.disconnect(V5), b"\xe0\x00"),
        (encode.disconnect(V5, Reason.SESSION_TAKEN_OVER), b"\xe0\x01\x8e"),
        (encode.auth(Reason.SUCCESS), b"\xf0\x00"),
        (encode.publish(V311, b"a", b"p"), b"\x30\x04\x00\x01ap"),
        (encode.publish(V5, b"a", b"p"), b"\x30\x05\x00\x01a\x00p"),
        (encode.publish(V311, b"a", b"", qos=2, retain=True, dup=True, packet_id=258), b"\x3d\x05\x00\x01a\x01\x02"),
        (encode.publish(V5, b"", b"p", encoded_properties=b"\x23\x00\x01"), b"\x30\x07\x00\x00\x03\x23\x00\x01p"),
    ],
)
def test_bytes_on_the_wire(packet: bytes, encoded: bytes) -> None:
    assert packet == encoded


def test_a_disconnect_says_why_and_where_to() -> None:
    made = explained(b"evacuating")
    made.server_reference = b"other:1883"
    packet = encode.disconnect(V5, Reason.USE_ANOTHER_SERVER, made)
    assert packet[:1] + packet[2:3] == b"\xe0\x9c"
    paho, _ = PahoProperties(frame.DISCONNECT).unpack(packet[3:])
    assert (paho.ReasonString, paho.ServerReference) == ("evacuating", "other:1883")


def test_connack_says_what_the_server_allows() -> None:
    made = Properties()
    made.assigned_client_identifier = b"flock-1"
    made.receive_maximum, made.maximum_packet_size, made.topic_alias_maximum = 32, 1_048_576, 16
    made.server_keep_alive, made.shared_subscription_available = 60, 0
    packet = encode.connack(V5, Reason.SUCCESS, own=made)
    paho, length = PahoProperties(frame.CONNACK).unpack(packet[4:])
    assert length == len(packet) - 4
    assert (paho.AssignedClientIdentifier, paho.ReceiveMaximum, paho.MaximumPacketSize) == ("flock-1", 32, 1_048_576)
    assert (paho.TopicAliasMaximum, paho.ServerKeepAlive, paho.SharedSubscriptionAvailable) == (16, 60, 0)


def test_properties_that_a_packet_cannot_carry_are_left_out() -> None:
    made = explained(b"x")
    made.topic_alias = 1
    assert encode.disconnect(V5, 0x8E, made) == b"\xe0\x06\x8e\x04\x1f\x00\x01x"


@given(st.integers(1, 80))
def test_a_reason_string_goes_before_a_packet_is_too_large__MQTT_3_14_2_3(max_bytes: int) -> None:
    made = explained(b"a long story")
    made.user_properties = [(b"name", b"value")]
    made.server_reference = b"other"
    whole = encode.disconnect(V5, 0x9C, made)
    cut = encode.disconnect(V5, 0x9C, made, max_bytes=max_bytes)
    if max_bytes >= len(whole):
        assert cut == whole
    else:
        paho, _ = PahoProperties(frame.DISCONNECT).unpack(cut[3:])
        assert paho.json() == {"ServerReference": "other"}
    assert made.reason_string == b"a long story"


@given(st.sampled_from([V31, V311, V5]), st.binary(max_size=300), st.integers(0, 2), st.booleans())
def test_publish_is_laid_out_as_its_flags_say(version: int, payload: bytes, qos: int, retain: bool) -> None:
    made = Properties()
    made.message_expiry_interval = 10
    packet = encode.publish(
        version,
        b"some/topic",
        payload,
        qos=qos,
        retain=retain,
        packet_id=9,
        encoded_properties=properties.encode(frame.PUBLISH, made),
    )
    frame.check_flags(packet[0], version)
    length, at = frame.remaining_length(packet, 1)
    assert (packet[0], at + length) == (0x30 | qos << 1 | retain, len(packet))
    expected = b"\0\x0asome/topic" + (b"\0\x09" if qos else b"") + (b"\x05\x02\0\0\0\x0a" if version == V5 else b"")
    assert packet[at:] == expected + payload


def test_a_field_that_is_too_long_is_no_packet() -> None:
    with pytest.raises(ValueError, match="65536 bytes"):
        encode.publish(V311, b"a" * 65_536, b"")
