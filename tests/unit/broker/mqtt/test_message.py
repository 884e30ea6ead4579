"""A message that waits: what it says of its expiry when it is sent."""

from __future__ import annotations

import pytest

from conformance import wire
from flockmq.mqtt.message import StoredMessage

EXPIRY_S = 60
RECEIVED_S = 1000.0


def says_s(expires_s: float, sent_s: float, qos: int = 1) -> object:
    """The Message Expiry Interval of a message that came with EXPIRY_S."""
    properties: wire.Properties = [(wire.USER_PROPERTY, (b"a", b"b")), (wire.MESSAGE_EXPIRY, EXPIRY_S)]
    packet = wire.publish(wire.V5, "t", b"x", qos=qos, packet_id=1 if qos else None, properties=properties)
    sent = StoredMessage(packet, 5, expires_s).now(sent_s)
    return wire.parsed(5, sent[0], sent[2:]).value(wire.MESSAGE_EXPIRY)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(("waited_s", "says"), [(0.0, 60), (0.9, 60), (1.0, 59), (59.5, 1)])
def test_MQTT_3_3_2_6_it_says_less_by_what_it_waited(qos: int, waited_s: float, says: int) -> None:
    assert says_s(RECEIVED_S + EXPIRY_S, RECEIVED_S + waited_s, qos) == says


def test_MQTT_3_3_2_6_it_never_says_more_than_it_came_with() -> None:
    """It was received at a moment that is later than that by which it is sent: the clock was read twice."""
    assert says_s(RECEIVED_S + 0.001 + EXPIRY_S, RECEIVED_S) == EXPIRY_S


def test_MQTT_3_3_2_5_what_has_expired_is_not_sent() -> None:
    packet = wire.publish(wire.V5, "t", b"x", qos=1, packet_id=1, properties=[(wire.MESSAGE_EXPIRY, EXPIRY_S)])
    assert StoredMessage(packet, 5, RECEIVED_S + EXPIRY_S).now(RECEIVED_S + EXPIRY_S) == b""
