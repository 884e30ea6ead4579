"""The one error of the codec: a packet that the specification forbids."""

from __future__ import annotations

from typing import Final

from flockmq.mqtt.reason import Reason

CLOSE_ON_ERROR: Final = "MQTT-4.13.1-1"  # what a receiver does with any malformed packet; cited where no rule is nearer


class PacketError(Exception):
    """A malformed packet or protocol error; the connection it came on must be closed [MQTT-4.13.1-1].

    reason: what to answer with, in CONNACK or DISCONNECT, where the version has one.
    statement: the rule that was broken: `MQTT-3.1.2-1`, or `section 3.1.2.11.3` where the rule has no number. Numbers
    are those of MQTT 5.0, unless only 3.1.1 has the rule.
    The message is one line: what, where, and the statement. It holds no bytes of the packet, so it can be logged.
    """

    def __init__(self, reason: Reason, statement: str, what: str) -> None:
        super().__init__(f"{what} [{statement}]")
        self.reason = reason
        self.statement = statement


def malformed(what: str, statement: str = CLOSE_ON_ERROR) -> PacketError:
    """The packet can't be parsed as the specification lays it out (0x81)."""
    return PacketError(Reason.MALFORMED_PACKET, statement, what)


def protocol_error(what: str, statement: str) -> PacketError:
    """The packet parses, but says something that isn't allowed (0x82)."""
    return PacketError(Reason.PROTOCOL_ERROR, statement, what)
