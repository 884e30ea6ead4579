"""Reason codes (MQTT 5.0 section 2.4), and the return codes of older versions.

In the specification one number may have several names (0x00 is Success, Normal disconnection and Granted QoS 0); here
each number has one name. Codes from 0x80 on are failures.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Reason(IntEnum):
    """MQTT 5.0 reason codes; the value is the byte in the packet."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


# CONNACK return codes of MQTT 3.1 and 3.1.1 (3.1.1 section 3.2.2.3).
_V3_UNACCEPTABLE_PROTOCOL_VERSION: Final = 1
_V3_IDENTIFIER_REJECTED: Final = 2
_V3_SERVER_UNAVAILABLE: Final = 3
_V3_BAD_USER_NAME_OR_PASSWORD: Final = 4
_V3_NOT_AUTHORIZED: Final = 5

NO_RETURN_CODE: Final = -1
"""3.1.1 has no return code for this; the connection is closed without CONNACK [MQTT-3.2.2-6]."""

_V3_UNSAID: Final = (0x81, 0x82, 0x95)
"""Errors in the CONNECT packet itself: 3.1.1 only closes the connection [MQTT-3.1.4-1]."""

_V3_CONNACK: Final[dict[int, int]] = {
    0x00: 0,
    0x84: _V3_UNACCEPTABLE_PROTOCOL_VERSION,
    0x85: _V3_IDENTIFIER_REJECTED,
    0x86: _V3_BAD_USER_NAME_OR_PASSWORD,
    0x87: _V3_NOT_AUTHORIZED,
    0x8A: _V3_NOT_AUTHORIZED,
    0x8C: _V3_BAD_USER_NAME_OR_PASSWORD,
}


def v3_connack(reason: int) -> int:
    """The 3.1/3.1.1 CONNACK return code for a reason code. NO_RETURN_CODE for a CONNECT that violates the
    specification; 3 (server unavailable) for every other failure without its own return code.
    """
    return NO_RETURN_CODE if reason in _V3_UNSAID else _V3_CONNACK.get(reason, _V3_SERVER_UNAVAILABLE)
