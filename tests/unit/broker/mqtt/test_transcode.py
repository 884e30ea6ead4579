"""A PUBLISH of ours, converted for a client that came back with another version."""

import pytest

from flockmq.mqtt import encode
from flockmq.mqtt.message import transcode
from flockmq.mqtt.properties import subscription_identifier

PROPERTIES = (
    b"",
    subscription_identifier(1) + subscription_identifier(268_435_455),  # no client may send these [MQTT-3.3.4-6]
    b"\x26\x00\x01k\x00\x01v" * 40,
)


def packet(version: int, qos: int, payload: bytes, properties: bytes = b"") -> bytes:
    packet_id = 65_535 if qos else 0
    return encode.publish(
        version, b"a/b", payload, qos=qos, retain=True, dup=qos == 1, packet_id=packet_id, encoded_properties=properties
    )


@pytest.mark.parametrize("properties", PROPERTIES)
@pytest.mark.parametrize("payload", [b"", b"x" * 200])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_before_5_0_it_has_no_properties(qos: int, payload: bytes, properties: bytes) -> None:
    for version in (3, 4):
        assert transcode(packet(5, qos, payload, properties), 5, version) == packet(4, qos, payload)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_in_5_0_it_has_none_either(qos: int) -> None:
    for version in (3, 4):
        assert transcode(packet(4, qos, b"x"), version, 5) == packet(5, qos, b"x")


def test_3_1_and_3_1_1_have_the_same() -> None:
    assert transcode(packet(4, 1, b"x"), 3, 4) == packet(4, 1, b"x")
