"""The only error of the codec: a packet that violates the specification."""

from __future__ import annotations

from typing import Final

from flockmq.mqtt.reason import Reason

CLOSE_ON_ERROR: Final = "MQTT-4.13.1-1"  # the general rule for malformed packets; cited if no other rule fits


class PacketError(Exception):
    """A malformed packet or protocol error; its connection must be closed [MQTT-4.13.1-1].

    `reason`: the reason code for CONNACK or DISCONNECT. `statement`: the rule that was violated, such as
    `MQTT-3.1.2-1`, or `section 3.1.2.11.3` for a rule without number. Numbers are those of MQTT 5.0, unless only 3.1.1
    has the rule.

    The message is one line: what, where, and the rule. It contains no bytes of the packet, so it can be logged.
    """

    def __init__(self, reason: Reason, statement: str, what: str) -> None:
        super().__init__(f"{what} [{statement}]")
        self.reason = reason
        self.statement = statement


def malformed(what: str, statement: str = CLOSE_ON_ERROR) -> PacketError:
    """The packet can't be parsed (0x81)."""
    return PacketError(Reason.MALFORMED_PACKET, statement, what)


def protocol_error(what: str, statement: str) -> PacketError:
    """The packet can be parsed, but isn't allowed (0x82)."""
    return PacketError(Reason.PROTOCOL_ERROR, statement, what)
