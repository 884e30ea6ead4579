"""A message on its way to the owners of slots."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.routing.slots import aged_packet, may_expire

UNADDRESSED: Final[list[int]] = []
"""The slots of a message from a node of the first release: the receiver finds them itself."""


@mypyc_attr(acyclic=True)
class SlotMessage:
    """One message, or a run of QoS 0 packets, for slots.

    - `source` and `number` are its id (`routing.message_id`); a run has none: b"" and 0.
    - `publisher`: the client id of a 5.0 publisher, for No Local, else b"".
    - `packet`: one whole PUBLISH, or the run, encoded for MQTT `version` (4 or 5).
    - `slots`: all slots that it is for, including those of other owners.
    """

    __slots__ = ("number", "packet", "publisher", "slots", "source", "version")

    def __init__(
        self,
        source: bytes,
        number: int,
        publisher: bytes,
        version: int,
        packet: bytes,
        slots: list[int] = UNADDRESSED,
    ) -> None:
        self.source = source
        self.number = number
        self.publisher = publisher
        self.version = version
        self.packet = packet
        self.slots: list[int] = slots

    def aged(self, waited_s: int) -> SlotMessage:
        """The same message after it waited for this long: its remaining expiry interval is shorter."""
        if not may_expire(self.version) or not self.source:
            return self
        packet = aged_packet(self.version, self.packet, waited_s)
        return SlotMessage(self.source, self.number, self.publisher, self.version, packet, self.slots)
