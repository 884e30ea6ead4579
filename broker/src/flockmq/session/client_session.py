"""The interface of a session for its connection. It runs here (`local_session`) or at its owner (`remote_session`).

When the answer is LATER, and for SUBSCRIBE and UNSUBSCRIBE, the owner answers after it has committed the change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr, trait

from flockmq.default_callbacks import ignore
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.session.limits import Limits

UNKNOWN: Final = 0
"""No exchange has this packet id."""
DONE: Final = 1
"""The connection answers the client now."""
LATER: Final = 2
"""The owner answers later."""

NEW: Final = 0
REPEAT: Final = 1
"""A message with this packet id was received and not yet released [MQTT-4.3.3-10]."""
FULL: Final = 2
"""Too many messages wait for PUBREL."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SubscribeChange:
    """A SUBSCRIBE after authorization: the part that the client is allowed."""

    def wanted(self) -> list[tuple[bytes, SubscribeEntry]]:
        """(filter, what the client asked for) of each subscription that isn't decided yet."""
        raise NotImplementedError(type(self).__name__)

    def identifiers(self) -> bytes:
        """The subscription identifier, encoded as in a subscription."""
        raise NotImplementedError(type(self).__name__)

    def subscribe_here(self) -> None:
        """The session runs at this node: subscribe."""
        raise NotImplementedError(type(self).__name__)

    def answered(self, reasons: list[int]) -> None:
        """The owner's reason codes for `wanted`, in order; [] if the connection has ended."""
        raise NotImplementedError(type(self).__name__)


@mypyc_attr(allow_interpreted_subclasses=True)
class UnsubscribeChange:
    """An UNSUBSCRIBE of these filters."""

    def __init__(self, filters: list[bytes]) -> None:
        self.filters = filters

    def unsubscribe_here(self) -> None:
        """The session runs at this node: unsubscribe."""
        raise NotImplementedError(type(self).__name__)

    def answered(self, reasons: list[int]) -> None:
        """The reason codes for UNSUBACK, one for each filter; [] if the connection has ended."""
        raise NotImplementedError(type(self).__name__)


@trait
@mypyc_attr(acyclic=True)
class ClientSession:
    """`awaiting_rel`: packet ids of the client's QoS 2 messages from PUBLISH to PUBREL [MQTT-4.3.3], and when each
    arrived.
    """

    awaiting_rel: dict[int, float] | None
    client_id: bytes
    expiry_s: int
    limits: Limits
    max_packet_bytes: int

    def is_remote(self) -> bool:
        """True if the session is durable: it runs at its owner."""
        raise NotImplementedError(type(self).__name__)

    def is_congested(self) -> bool:
        """True if so many messages wait that publishers to this session should pause."""
        raise NotImplementedError(type(self).__name__)

    def held_bytes(self) -> int:
        """What this node's memory has for the session: messages that wait, or that the client hasn't acknowledged, and
        topics of aliases.
        """
        raise NotImplementedError(type(self).__name__)

    def send_again(self) -> None:
        """CONNACK said Session Present: send unacknowledged messages again [MQTT-4.4.0-1]."""
        raise NotImplementedError(type(self).__name__)

    def subscribe(self, change: SubscribeChange) -> None:
        raise NotImplementedError(type(self).__name__)

    def unsubscribe(self, change: UnsubscribeChange) -> None:
        raise NotImplementedError(type(self).__name__)

    # Acknowledgements from the client.

    def puback(self, packet_id: int) -> bool:
        """Returns False if no QoS 1 message has this packet id."""
        raise NotImplementedError(type(self).__name__)

    def pubrec(self, packet_id: int, refused: bool) -> int:
        """`refused`: the reason code is ≥ 0x80, which ends the exchange [MQTT-4.4.0-2]. Returns UNKNOWN,
        DONE or LATER.
        """
        raise NotImplementedError(type(self).__name__)

    def pubcomp(self, packet_id: int) -> bool:
        """Returns False if no QoS 2 message with this packet id was released."""
        raise NotImplementedError(type(self).__name__)

    def contradicts(self, kind: int, packet_id: int) -> bool:
        """True if this PUBACK, PUBREC or PUBCOMP is of a wrong type for the exchange with this packet id."""
        raise NotImplementedError(type(self).__name__)

    # QoS 2 messages from the client.

    def receive(self, packet_id: int, now_s: float) -> int:
        """A PUBLISH with this packet id arrived. Returns NEW, REPEAT or FULL; a new one now waits for PUBREL."""
        if self.awaiting_rel is not None and packet_id in self.awaiting_rel:
            return REPEAT
        if not self.may_receive(now_s):
            return FULL
        self.remember(packet_id, now_s)
        return NEW

    def may_receive(self, now_s: float) -> bool:
        """True if one more message may wait for PUBREL. Forgets messages that have waited too long."""
        awaiting = self.awaiting_rel
        if awaiting is None or len(awaiting) < self.limits.max_awaiting_rel:
            return True
        horizon_s = now_s - self.limits.await_rel_timeout
        for packet_id in [packet_id for packet_id, since_s in awaiting.items() if since_s < horizon_s]:
            self.forget(packet_id, ignore)
            self.release(packet_id)
        return len(awaiting) < self.limits.max_awaiting_rel

    def remember(self, packet_id: int, now_s: float) -> None:
        if self.awaiting_rel is None:
            self.awaiting_rel = {}
        self.awaiting_rel[packet_id] = now_s

    def forget(self, packet_id: int, forgotten: Callable[[], None]) -> bool:
        """The message was refused, or waited too long for its PUBREL: its packet id may be used for another message.
        False: not yet; `forgotten` is called when the owner has committed that.
        """
        self.release(packet_id)
        return True

    def pubrel(self, packet_id: int) -> int:
        """How to answer: UNKNOWN (with reason code 0x92), DONE or LATER."""
        raise NotImplementedError(type(self).__name__)

    def release(self, packet_id: int) -> bool:
        """Returns False if the packet id is unknown."""
        awaiting = self.awaiting_rel
        if awaiting is None or packet_id not in awaiting:
            return False
        del awaiting[packet_id]
        if not awaiting:
            self.awaiting_rel = None
        return True
