"""What an owner reads of a session that another one put."""

from __future__ import annotations

import pytest

from flockmq.durable.session_fields import (
    PENDING_RETAINED,
    RELEASED,
    WAITS,
    message_parts,
    message_value,
    subscription_of,
    subscription_value,
)
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.properties import subscription_identifier
from flockmq.routing.subscriber import Subscription
from unit.broker.durable.session_owner import SessionOwner, message

UNREADABLE = (ValueError, IndexError, PacketError)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("identifiers", [b"", subscription_identifier(1), subscription_identifier(268_435_455)])
def test_a_subscription_is_read_as_it_was_put(qos: int, flag: bool, identifiers: bytes) -> None:
    session = SessionOwner().fresh()
    put = Subscription(session, b"a/#", qos, flag, flag, identifiers)
    value = subscription_value(put, flag)
    assert value[0] & PENDING_RETAINED == (PENDING_RETAINED if flag else 0)
    read = subscription_of(session, b"a/#", value)
    assert (read.filter, read.qos, read.no_local, read.retain_as_published, read.identifiers) == (
        (b"a/#", qos, flag, flag, identifiers)
    )


@pytest.mark.parametrize(
    ("filter", "value"),
    [
        (b"a", b""),
        (b"a", b"\x03"),
        (b"a", b"\x13"),
        (b"a", b"\x10"),
        (b"a", b"\x40"),
        (b"a", b"\x01\x0b"),
        (b"a", b"\x01\x0b\x00"),
        (b"a", b"\x01\x0b\x01\x01"),
        (b"a", b"\x01\x0b\x81\x00"),
        (b"a", b"\x01\x0b\xff\xff\xff\xff\x01"),
        (b"a", b"\x01\x26\x01"),
        (b"", b"\x01"),
        (b"a/#/b", b"\x01"),
        (b"\xff", b"\x01"),
    ],
)
def test_a_subscription_that_no_owner_put_is_refused(filter: bytes, value: bytes) -> None:
    with pytest.raises(UNREADABLE):
        subscription_of(SessionOwner().fresh(), filter, value)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [4, 5])
def test_a_message_is_read_as_it_was_put(qos: int, version: int) -> None:
    packet = message("x" * 200, qos, version, 7).packet
    parts = WAITS, qos, version, 12, b"$share/g/t", packet
    assert message_parts(message_value(*parts)) == parts
    released = RELEASED, 2, version, 0, b"", b""
    assert message_parts(message_value(*released)) == released


PACKET = message("x", 1).packet


@pytest.mark.parametrize(
    "value",
    [
        message_value(2, 1, 4, 0, b"", PACKET),
        message_value(WAITS, 0, 4, 0, b"", message("x", 0).packet),
        message_value(WAITS, 3, 4, 0, b"", b"\x36" + PACKET[1:]),
        message_value(WAITS, 2, 4, 0, b"", PACKET),
        message_value(WAITS, 1, 3, 0, b"", PACKET),
        message_value(WAITS, 1, 4, 0, b"", b""),
        message_value(WAITS, 1, 4, 0, b"", PACKET[:-1]),
        message_value(WAITS, 1, 4, 0, b"", PACKET + b"x"),
        message_value(WAITS, 1, 4, 0, b"", b"\x32\x03\0\2t"),
        message_value(RELEASED, 1, 4, 0, b"", b""),
        message_value(RELEASED, 2, 4, 0, b"", PACKET),
    ],
)
def test_a_message_that_no_owner_put_is_refused(value: bytes) -> None:
    with pytest.raises(UNREADABLE):
        message_parts(value)
