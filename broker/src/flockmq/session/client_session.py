"""What a connection calls of its session, wherever that runs: here (`local_session`), or at its owner
(`remote_session`).

Where the session answers LATER, or to a SUBSCRIBE or an UNSUBSCRIBE, its owner has committed what it says by then.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr, trait

from flockmq.mqtt.packets import SubscribeEntry
from flockmq.session.limits import Limits

UNKNOWN: Final = 0
"""No exchange has this packet id."""
DONE: Final = 1
"""The client is answered now."""
LATER: Final = 2
"""The owner answers it."""

NEW: Final = 0
REPEAT: Final = 1
"""The packet id was received and not yet released [MQTT-4.3.3-10]."""
FULL: Final = 2
"""Too many await their PUBREL."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SubscribeChange:
    """A SUBSCRIBE that was judged: what the client may have of it."""

    def wanted(self) -> list[tuple[bytes, SubscribeEntry]]:
        """(filter, what was asked for) of all that isn't decided yet."""
        raise NotImplementedError(type(self).__name__)

    def identifiers(self) -> bytes:
        """As a subscription keeps them."""
        raise NotImplementedError(type(self).__name__)

    def subscribe_here(self) -> None:
        """The session runs here."""
        raise NotImplementedError(type(self).__name__)

    def told(self, reasons: list[int]) -> None:
        """What the owner made of `wanted`, in its order; [] if the connection is gone."""
        raise NotImplementedError(type(self).__name__)


@mypyc_attr(allow_interpreted_subclasses=True)
class UnsubscribeChange:
    """An UNSUBSCRIBE of these filters."""

    def __init__(self, filters: list[bytes]) -> None:
        self.filters = filters

    def unsubscribe_here(self) -> None:
        """The session runs here."""
        raise NotImplementedError(type(self).__name__)

    def told(self, reasons: list[int]) -> None:
        """For each filter the reason code of UNSUBACK; [] if the connection is gone."""
        raise NotImplementedError(type(self).__name__)


@trait
@mypyc_attr(acyclic=True)
class ClientSession:
    """`awaiting_rel`: packet ids of the client's QoS 2 messages, from PUBLISH to PUBREL [MQTT-4.3.3], since when."""

    awaiting_rel: dict[int, float] | None
    client_id: bytes
    expiry_s: int
    limits: Limits
    max_packet_bytes: int

    def is_remote(self) -> bool:
        """It runs at its owner, and outlives this connection."""
        raise NotImplementedError(type(self).__name__)

    def is_congested(self) -> bool:
        """So many messages wait that whoever publishes to this session should pause."""
        raise NotImplementedError(type(self).__name__)

    def send_again(self) -> None:
        """The client was told that its session was there: what it didn't acknowledge comes again [MQTT-4.4.0-1]."""
        raise NotImplementedError(type(self).__name__)

    def subscribe(self, change: SubscribeChange) -> None:
        raise NotImplementedError(type(self).__name__)

    def unsubscribe(self, change: UnsubscribeChange) -> None:
        raise NotImplementedError(type(self).__name__)

    # What the client answers.

    def puback(self, packet_id: int) -> bool:
        """False: no QoS 1 message has this packet id."""
        raise NotImplementedError(type(self).__name__)

    def pubrec(self, packet_id: int, refused: bool) -> int:
        """`refused`: with a reason code ≥ 0x80, which ends the exchange [MQTT-4.4.0-2]. UNKNOWN, DONE or LATER."""
        raise NotImplementedError(type(self).__name__)

    def pubcomp(self, packet_id: int) -> bool:
        """False: no QoS 2 message was released under this packet id."""
        raise NotImplementedError(type(self).__name__)

    def contradicts(self, kind: int, packet_id: int) -> bool:
        """A PUBACK, PUBREC or PUBCOMP isn't what the exchange under way with this packet id waits for."""
        raise NotImplementedError(type(self).__name__)

    # The client's own QoS 2 messages.

    def receive(self, packet_id: int, now_s: float) -> int:
        """A message with this packet id: NEW, REPEAT or FULL; from now on it awaits its PUBREL."""
        if self.awaiting_rel is not None and packet_id in self.awaiting_rel:
            return REPEAT
        if not self.may_receive(now_s):
            return FULL
        self.remember(packet_id, now_s)
        return NEW

    def may_receive(self, now_s: float) -> bool:
        """Another one may wait for its PUBREL; those that waited for too long make room."""
        awaiting = self.awaiting_rel
        if awaiting is None or len(awaiting) < self.limits.max_awaiting_rel:
            return True
        horizon_s = now_s - self.limits.await_rel_timeout
        for packet_id in [packet_id for packet_id, since_s in awaiting.items() if since_s < horizon_s]:
            self.forget(packet_id)
        return len(awaiting) < self.limits.max_awaiting_rel

    def remember(self, packet_id: int, now_s: float) -> None:
        if self.awaiting_rel is None:
            self.awaiting_rel = {}
        self.awaiting_rel[packet_id] = now_s

    def forget(self, packet_id: int) -> None:
        """The message was refused, or waited too long for its PUBREL: its packet id may stand for another one."""
        self.release(packet_id)

    def pubrel(self, packet_id: int) -> int:
        """When to answer: UNKNOWN (with 0x92), DONE, LATER."""
        raise NotImplementedError(type(self).__name__)

    def release(self, packet_id: int) -> bool:
        """False: it isn't remembered."""
        awaiting = self.awaiting_rel
        if awaiting is None or packet_id not in awaiting:
            return False
        del awaiting[packet_id]
        if not awaiting:
            self.awaiting_rel = None
        return True
