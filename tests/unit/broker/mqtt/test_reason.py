"""Reason codes, and what MQTT 3.1.1 says instead."""

from __future__ import annotations

import pytest
from paho.mqtt.reasoncodes import ReasonCode

from flockmq.mqtt.reason import NO_RETURN_CODE, Reason, v3_connack


def test_every_code_is_known_to_the_reference_client() -> None:
    known = ReasonCode(packetType=2).names  # all names, with the codes and packets of each
    assert {int(reason) for reason in Reason} == set(known)


@pytest.mark.parametrize(
    ("reason", "return_code"),
    [
        (Reason.SUCCESS, 0),
        (Reason.UNSUPPORTED_PROTOCOL_VERSION, 1),
        (Reason.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (Reason.SERVER_UNAVAILABLE, 3),
        (Reason.QUOTA_EXCEEDED, 3),
        (Reason.USE_ANOTHER_SERVER, 3),
        (Reason.BAD_USER_NAME_OR_PASSWORD, 4),
        (Reason.NOT_AUTHORIZED, 5),
        (Reason.BANNED, 5),
        (Reason.MALFORMED_PACKET, NO_RETURN_CODE),
        (Reason.PROTOCOL_ERROR, NO_RETURN_CODE),
        (Reason.PACKET_TOO_LARGE, NO_RETURN_CODE),
    ],
)
def test_v3_connack(reason: Reason, return_code: int) -> None:
    assert v3_connack(reason) == return_code


def test_a_failure_is_never_a_success_in_3_1_1() -> None:
    assert [reason for reason in Reason if reason >= 0x80 and v3_connack(reason) == 0] == []
