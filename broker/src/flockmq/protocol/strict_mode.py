"""`strict_mode`: checks that MQTT allows a server to make, and that this one makes only if configured.

 control characters and non-characters in any string    0x81  section 1.5.4
 a payload or will marked as UTF-8 that isn't            0x99  sections 3.3.2.3.2, 3.1.3.2.3
 a QoS 2 PUBLISH that is sent again without DUP          0x82  [MQTT-3.3.1-1]
 a client id of more than 23 characters, in MQTT 3.1     0x02  section 3.1 of that version

Strings are checked where packets are decoded (`mqtt.wire`); those of a PUBLISH are checked here. Invariant: the fast
path of a strict client takes only heads that were checked here, as for a client whose publishes must be authorized.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt import decode, frame
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.frame import varint
from flockmq.mqtt.message import Publish
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.wire import check_characters

CLIENT_ID_MAX_CHARACTERS: Final = 23


def check_connect(connect: Connect) -> None:
    """Check everything except strings. Raises PacketError."""
    if connect.version == frame.V31 and len(connect.client_id.decode()) > CLIENT_ID_MAX_CHARACTERS:
        raise PacketError(
            Reason.CLIENT_IDENTIFIER_NOT_VALID,
            "section 3.1 of MQTT 3.1",
            f"client id of more than {CLIENT_ID_MAX_CHARACTERS} characters, in MQTT 3.1 and strict_mode",
        )
    will = connect.will
    if will is not None and not _is_as_indicated(will.properties, will.payload):
        raise PacketError(
            Reason.PAYLOAD_FORMAT_INVALID, "section 3.1.3.2.3", "will whose payload is said to be UTF-8, and isn't"
        )


def check_publish(message: Publish) -> bool:
    """Check a PUBLISH. Returns True if its payload is as indicated; raises PacketError for its strings."""
    check_characters(message.topic, "topic name")
    if not message.properties:
        return True
    block = varint(len(message.properties)) + message.properties
    own, _ = decode.publish_properties(block, 0, len(block), is_strict=True)
    return _is_as_indicated(own, message.payload())


def _is_as_indicated(own: Properties | None, payload: bytes) -> bool:
    if own is None or own.payload_format_indicator != 1:
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
